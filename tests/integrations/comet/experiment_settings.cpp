#include "etude/integrations/comet/experiment_settings.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "integrations/comet/experiments.hpp"

namespace integrations_comet_settings_test {

using namespace comets;

TEST_CASE("options win over variables, and those over defaults") {
  const toy::Folder folder;
  const auto name_of = [&](const std::function<void(CometCallback&)>& change,
                           std::optional<std::string> run_name) {
    const toy::Folder archives;
    auto callback = offline(folder);
    callback.offline_directory = std::string(archives);
    change(callback);
    auto args = arguments(folder);
    args.run_name = run_name;
    etude::Trainer<CometCallback>(toy::options(args), callback).train();
    const auto found = experiments(std::string(archives));
    auto others = found.at(0).others();
    return others["Name"].dump() + found[0].info.at("project_name").dump() + found[0].info.at("tags").dump();
  };
  const auto nothing = [](CometCallback&) {};
  {
    const Variables none;
    CHECK(name_of(nothing, {}) == "nullnull[]");
    CHECK(name_of(nothing, folder / "out") ==
          "nullnull[]");  // like the default name in older Hugging Face releases
    CHECK(name_of(nothing, "run") == "\"run\"null[]");
  }
  {
    const Variables set(Variables::Set{{"COMET_EXPERIMENT_NAME", "m"}});
    CHECK(name_of(nothing, {}) == "\"m\"null[]");
  }
  const Variables set(Variables::Set{{"COMET_PROJECT_NAME", "p"},
                                     {"COMET_START_EXPERIMENT_NAME", "n"},
                                     {"COMET_EXPERIMENT_NAME", "m"},
                                     {"COMET_START_EXPERIMENT_TAGS", "x, y,,"},
                                     {"COMET_OFFLINE_DIRECTORY", "/nonexistent/a"},
                                     {"COMET_API_KEY", "k"}});
  CHECK(name_of(nothing, {}) == "\"n\"\"p\"[\"x\",\"y\"]");
  CHECK(name_of(nothing, "run") == "\"run\"\"p\"[\"x\",\"y\"]");
  CHECK(name_of(
            [](CometCallback& callback) {
              callback.experiment_name = "mine";
              callback.project_name = "q";
              callback.tags = {"z"};
            },
            "run") == "\"mine\"\"q\"[\"z\"]");
}

/// Changes the working directory while it lives.
struct Within {
  explicit Within(const fs::path& folder) { fs::current_path(folder); }
  ~Within() { fs::current_path(before); }
  fs::path before = fs::current_path();
};

TEST_CASE(".env is read after the environment and before .comet.config") {
  const toy::Folder folder;
  const Within within{std::string(folder)};
  toy::write_text(".comet.config", "[comet]\nproject_name = third\nworkspace = third\napi_key = third\n");
  toy::write_text(".env",
                  "# COMET_WORKSPACE=no\nsomething else\nexport COMET_WORKSPACE = 'second'\r\n"
                  "COMET_PROJECT_NAME=second\nCOMET_API_KEY=\"a=b\"\nCOMET_MODE=\nPATH=/nonexistent\n");
  const Variables set(Variables::Set{{"COMET_PROJECT_NAME", "first"}});
  const auto settings = etude::detail::comet::settings_of(CometCallback(), arguments(folder), {});
  CHECK(settings.project == "first");
  CHECK(settings.workspace == "second");
  CHECK(settings.api_key == "a=b");
  CHECK(settings.mode == "get_or_create");
  CHECK(CometCallback::is_available());
}

TEST_CASE("private data, or everything, isn't logged if variables say so") {
  const auto types_with = [](const Variables::Set& variables) {
    const Variables set(variables);
    const toy::Folder folder;
    etude::Trainer<CometCallback>(toy::options(arguments(folder)), offline(folder)).train();
    std::string types;
    for (const auto& one : experiments(folder / "comet"))
      types += std::to_string(one.of("system_details").size()) + std::to_string(one.of("file_name").size());
    return types;
  };
  CHECK(types_with({{"COMET_AUTO_LOG_ENV_HOST", "1"}}) == "11");
  CHECK(types_with({{"COMET_AUTO_LOG_ENV_HOST", "0"}}) == "01");
  CHECK(types_with({{"COMET_AUTO_LOG_ENV_DETAILS", "false"}}) == "01");
  CHECK(types_with({{"COMET_AUTO_LOG_CODE", "no"}}) == "10");
  CHECK(types_with({{"COMET_AUTO_LOG_DISABLE", "1"}}) == "");
}

TEST_CASE("certificates come from the variables of Comet's client and Python's requests") {
  const toy::Folder folder;
  toy::write_text(folder / "own.pem", "");
  toy::write_text(folder / "all.pem", "");
  const auto settings_with = [&](Variables::Set variables) {
    variables["COMET_API_KEY"] = "k";
    const Variables set(variables);
    return etude::detail::comet::settings_of(CometCallback(), arguments(folder), {});
  };
  CHECK(settings_with({}).verify);
  CHECK(settings_with({}).certificates.empty());
  CHECK_FALSE(settings_with({{"COMET_INTERNAL_CHECK_TLS_CERTIFICATE", "0"}}).verify);
  CHECK(settings_with({{"REQUESTS_CA_BUNDLE", folder / "all.pem"}}).certificates == folder / "all.pem");
  CHECK(settings_with({{"REQUESTS_CA_BUNDLE", folder / "all.pem"},
                       {"COMET_INCLUDE_CUSTOM_CA_BUNDLE", folder / "own.pem"}})
            .certificates == folder / "own.pem");
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] {
                        settings_with({{"CURL_CA_BUNDLE", folder / "none.pem"}});
                      }),
                      "none.pem': must be a file of certificates"));
}

TEST_CASE("a training that is offline because it lacks a key gives a warning, and so do unused variables") {
  const toy::Folder folder;
  const auto reported = [&](const Variables::Set& variables, std::optional<bool> online = {}) {
    const Variables set(variables);
    CometCallback callback;
    callback.online = online;
    std::string text;
    for (const auto& notice : etude::detail::comet::settings_of(callback, arguments(folder), {}).notices)
      text += notice.text;
    return text;
  };
  CHECK(toy::contains(reported({}), "offline, in .cometml-runs"));
  CHECK(reported({{"COMET_START_ONLINE", "0"}}).empty());
  CHECK(reported({}, false).empty());
  CHECK(reported({{"COMET_API_KEY", "k"}}).empty());
  CHECK(toy::contains(reported({{"COMET_API_KEY", "k"},
                                {"COMET_INI", "f"},
                                {"COMET_ALLOW_HEADER_NAME", "h"},
                                {"COMET_LOG_OTHER_TEAM", "red"}}),
                      "have no effect here: COMET_INI, COMET_ALLOW_HEADER_NAME, COMET_LOG_OTHER_TEAM"));
}

TEST_CASE("the file of `comet login` is read, after the environment") {
  const toy::Folder home, folder;
  toy::write_text(home / ".comet.config",
                  "# Config file\n\n[comet]\napi_key = stored\nworkspace = w\nproject_name=p\n\n"
                  "[comet_start]\nonline = False\n");
  const Variables set(Variables::Set{{"HOME", home}, {"COMET_PROJECT_NAME", "q"}});
  CHECK(CometCallback::is_available());
  auto callback = offline(folder);
  callback.online.reset();
  etude::Trainer<CometCallback>(toy::options(arguments(folder)), callback).train();
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 1);
  CHECK(found[0].info.at("workspace") == "w");
  CHECK(found[0].info.at("project_name") == "q");

  toy::write_text(home / ".comet.config", "[comet]\nno value\n");
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] {
                        etude::Trainer<CometCallback>(toy::options(arguments(folder)), callback).train();
                      }),
                      ".comet.config can't be read"));
}

TEST_CASE("a key may contain its server") {
  const Variables none;
  const toy::Folder folder;
  const auto server_of = [&](const std::string& key, const std::string& url) {
    auto callback = offline(folder);
    callback.api_key = key;
    callback.url_override = url;
    const auto settings = etude::detail::comet::settings_of(callback, arguments(folder), {});
    return settings.client_url + " " + settings.rest_url;
  };
  // {"baseUrl": "https://comet.example/"}
  const std::string key = "abc*eyJiYXNlVXJsIjogImh0dHBzOi8vY29tZXQuZXhhbXBsZS8ifQ==";
  CHECK(server_of(key, "") == "https://comet.example/clientlib https://comet.example");
  CHECK(server_of("abc", "") == "https://www.comet.com/clientlib https://www.comet.com");
  CHECK(server_of("abc*#", "") == "https://www.comet.com/clientlib https://www.comet.com");
  CHECK(server_of(key, "http://own:80/a/clientlib/") == "http://own:80/a/clientlib http://own:80/a");
  CHECK(server_of(key, "http://own") == "http://own http://own");
}

TEST_CASE("invalid options and variables are refused when training begins") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  const auto fault = [&](const std::function<void(CometCallback&)>& change) {
    auto callback = offline(folder);
    callback.online.reset();
    change(callback);
    return toy::fault_of<etude::ArgumentError>(
        [&] { etude::Trainer<CometCallback>(toy::options(arguments(folder)), callback).train(); });
  };
  const auto nothing = [](CometCallback&) {};
  {
    const Variables none;
    CHECK(toy::contains(fault([](auto& c) { c.mode = "Often"; }),
                        "is 'often': must be get_or_create, create or get"));
    CHECK(toy::contains(fault([](auto& c) { c.mode = "get"; }), "needs experiment_key"));
    CHECK(toy::contains(fault([](auto& c) { c.experiment_key = std::string(31, 'a'); }),
                        "32 to 50 letters and digits"));
    CHECK(toy::contains(fault([](auto& c) { c.experiment_key = std::string(31, 'a') + "-"; }),
                        "32 to 50 letters and digits"));
    CHECK(toy::contains(fault([](auto& c) { c.online = true; }), "set COMET_API_KEY"));
    CHECK(toy::contains(fault([&](auto& c) { c.offline_directory = folder / "file/below"; }),
                        "offline_directory"));
    CHECK(toy::contains(fault([](auto& c) {
                          c.api_key = "k";
                          c.url_override = "ftp://user:hidden@server";
                        }),
                        "url_override"));
    CHECK_FALSE(toy::contains(fault([](auto& c) {
                                c.api_key = "k";
                                c.url_override = "ftp://user:hidden@server";
                              }),
                              "hidden"));
    CHECK(toy::contains(fault([&](auto& c) {
                          c.api_key = "k";
                          c.spool_directory = folder / "file/below";
                        }),
                        "file/below"));
  }
  const Variables set(Variables::Set{{"COMET_START_ONLINE", "perhaps"}});
  CHECK(toy::contains(fault(nothing), "COMET_START_ONLINE is 'perhaps'"));
}

TEST_CASE("earlier versions' COMET_MODE is understood, with a warning") {
  for (const std::string mode : {"OFFLINE", "disabled"}) {
    const Variables set(Variables::Set{{"COMET_MODE", mode}, {"COMET_API_KEY", "k"}});
    const toy::Folder folder;
    auto args = arguments(folder);
    args.log_level = etude::LogLevel::warning;
    auto callback = offline(folder);
    callback.online.reset();
    const auto said = toy::printed(
        [&] { etude::Trainer<CometCallback>(toy::options(args), callback).train(); }, STDERR_FILENO);
    CHECK(toy::contains(said, "belongs to an earlier version: use COMET_START_ONLINE"));
    CHECK(experiments(folder / "comet").size() == (mode == "OFFLINE" ? 1 : 0));
    CHECK_FALSE(fs::exists(folder / "spool"));
  }
}

TEST_CASE("report_to=all includes it if there is a key or offline experiments are configured") {
  const auto is_available = [](const Variables::Set& set) {
    const Variables variables(set);
    return CometCallback::is_available();
  };
  CHECK_FALSE(is_available({}));
  CHECK(is_available({{"COMET_API_KEY", "k"}}));
  CHECK(is_available({{"COMET_MODE", "offline"}}));
  CHECK(is_available({{"COMET_START_ONLINE", "0"}}));
  CHECK_FALSE(is_available({{"COMET_START_ONLINE", "1"}}));
  CHECK_FALSE(is_available({{"COMET_API_KEY", "k"}, {"COMET_AUTO_LOG_DISABLE", "1"}}));
  CHECK_FALSE(is_available({{"COMET_API_KEY", "k"}, {"COMET_MODE", "disabled"}}));
}

}  // namespace integrations_comet_settings_test
