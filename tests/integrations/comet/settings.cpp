#include "etude/integrations/comet/settings.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "integrations/comet/experiments.hpp"

namespace {

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
    for (const auto& payload : found.at(0).of("log_other"))
      if (payload.at("key") == "Name")
        return payload.at("value").get<std::string>() + "|" + found[0].facts.at("project_name").dump() + "|" +
               found[0].facts.at("tags").dump();
    return std::string();
  };
  const auto nothing = [](CometCallback&) {};
  {
    const Variables none;
    CHECK(name_of(nothing, {}) == (folder / "out").string() + "|null|[]");
  }
  const Variables set(Variables::Set{{"COMET_PROJECT_NAME", "p"},
                                     {"COMET_START_EXPERIMENT_NAME", "n"},
                                     {"COMET_START_EXPERIMENT_TAGS", "x, y,,"},
                                     {"COMET_OFFLINE_DIRECTORY", "/nonexistent/a"},
                                     {"COMET_API_KEY", "k"}});
  CHECK(name_of(nothing, {}) == "n|\"p\"|[\"x\",\"y\"]");
  CHECK(name_of(nothing, "run") == "run|\"p\"|[\"x\",\"y\"]");
  CHECK(name_of(
            [](CometCallback& callback) {
              callback.experiment_name = "mine";
              callback.project_name = "q";
              callback.tags = {"z"};
            },
            "run") == "mine|\"q\"|[\"z\"]");
}

TEST_CASE("what comet login has written is read, behind the environment") {
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
  CHECK(found[0].facts.at("workspace") == "w");
  CHECK(found[0].facts.at("project_name") == "q");

  toy::write_text(home / ".comet.config", "[comet]\nno value\n");
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] {
                        etude::Trainer<CometCallback>(toy::options(arguments(folder)), callback).train();
                      }),
                      ".comet.config can't be read"));
}

TEST_CASE("a key may say which server it is for") {
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

TEST_CASE("options and variables that can't be are refused when training begins") {
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

TEST_CASE("what earlier versions had in COMET_MODE is understood, and told") {
  for (const std::string mode : {"OFFLINE", "disabled"}) {
    const Variables set(Variables::Set{{"COMET_MODE", mode}, {"COMET_API_KEY", "k"}});
    const toy::Folder folder;
    auto args = arguments(folder);
    args.log_level = etude::LogLevel::warning;
    auto callback = offline(folder);
    callback.online.reset();
    const auto said = toy::printed(
        [&] { etude::Trainer<CometCallback>(toy::options(args), callback).train(); }, STDERR_FILENO);
    CHECK(toy::contains(said, "is of an earlier version: use COMET_START_ONLINE"));
    CHECK(experiments(folder / "comet").size() == (mode == "OFFLINE" ? 1 : 0));
    CHECK_FALSE(fs::exists(folder / "spool"));
  }
}

TEST_CASE("report_to=all takes it where there is a key or offline experiments are asked for") {
  const auto is_available = [](const Variables::Set& set) {
    const Variables variables(set);
    return CometCallback::is_available();
  };
  CHECK_FALSE(is_available({}));
  CHECK(is_available({{"COMET_API_KEY", "k"}}));
  CHECK(is_available({{"COMET_MODE", "offline"}}));
  CHECK(is_available({{"COMET_START_ONLINE", "0"}}));
  CHECK_FALSE(is_available({{"COMET_START_ONLINE", "1"}}));
  CHECK_FALSE(is_available({{"COMET_API_KEY", "k"}, {"COMET_MODE", "disabled"}}));
}

}  // namespace
