#include "etude/integrations/comet.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/testing/laws.hpp"
#include "integrations/comet/experiments.hpp"

namespace integrations_comet_test {

using namespace comets;

struct LogsMore {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step != 2) return;
    e.log("nan", std::numeric_limits<double>::quiet_NaN());
    e.log("inf", std::numeric_limits<double>::infinity());
    e.log("low", -std::numeric_limits<double>::infinity());
    e.log("name(odd) \u00fc", 0.5);
    e.log(std::string(150, 'n'), 1);
  }
};

struct IsTerminated {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) ::raise(SIGTERM);
  }
};

struct OwnHandler {
  void (*before)(int) = ::signal(SIGTERM, [](int) {});
  ~OwnHandler() { ::signal(SIGTERM, before); }
};

struct Throws {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) throw std::runtime_error("the third step");
  }
};

TEST_CASE("an archive has the logged data, under Comet's names and in its formats") {
  const Variables none;
  const toy::Folder folder;
  auto callback = offline(folder);
  callback.project_name = "project";
  callback.tags = {"a", "b"};
  callback.config = {{"sizes", {1, 2}},
                     {"deep", {{"er", nullptr}, {"none", Json::object()}}},
                     {"matrix", {{1, 2}, {3, 4}}},
                     {"long", std::string(1001, 'x')},
                     {"rate", std::numeric_limits<double>::infinity()},
                     {"many", std::vector<int>(600, 7)}};
  etude::TrainerState state;
  {
    etude::Trainer<LogsMore, CometCallback> trainer(toy::options(arguments(folder)), LogsMore{}, callback);
    trainer.train();
    state = trainer.state();
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 1);
  const auto& one = found[0];
  CHECK(one.name == one.key() + ".zip");
  CHECK(one.key().size() == 32);
  CHECK(one.info.at("project_name") == "project");
  CHECK(one.info.at("workspace").is_null());
  CHECK(one.info.at("tags") == Json{"a", "b"});
  CHECK(one.info.at("resume_strategy") == "get_or_create");
  CHECK(one.info.at("customer_error_reported") == false);

  CHECK(one.steps("train/loss") == std::vector{1, 2, 3, 4});
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(one.metric("train/loss")[i].second == state.log_history[i].at("loss"));
    CHECK(one.metric("train/epoch")[i].second == 0.5 * static_cast<double>(i + 1));
  }
  CHECK(one.steps("train/train_loss") == std::vector{4});
  CHECK(one.metric("train/nan")[0].second == "NaN");
  CHECK(one.metric("train/inf")[0].second == "Infinity");
  CHECK(one.metric("train/low")[0].second == "-Infinity");
  CHECK(one.metric("train/name(odd) \u00fc")[0].second == 0.5);
  CHECK(one.metric("train/" + std::string(82, 'n') + " [truncated]")[0].second == 1);
  CHECK(one.parameter("curr_step") == std::vector<Json>{1, 2, 3, 4});
  CHECK(one.parameter("curr_epoch") == std::vector<Json>{0.5, 1.0, 1.5, 2.0});

  CHECK(one.parameter("args|learning_rate") == std::vector<Json>{0.1});
  CHECK(one.parameter("args|run_name") == std::vector<Json>{nullptr});
  CHECK(one.parameter("config|sizes") == std::vector<Json>{Json{1, 2}});
  CHECK(one.parameter("config|deep|er") == std::vector<Json>{nullptr});
  CHECK(one.parameter("config|deep|none") == std::vector<Json>{"{}"});
  CHECK(one.parameter("config|matrix") == std::vector<Json>{"[[1,2],[3,4]]"});
  CHECK(one.parameter("config|long") == std::vector<Json>{std::string(988, 'x') + " [truncated]"});
  CHECK(one.parameter("config|rate") == std::vector<Json>{"Infinity"});
  CHECK(one.parameter("config|many").at(0).get<std::string>().size() == 1000);

  CHECK(one.others() == std::map<std::string, Json>{{"Created from", "etude"},
                                                    {"offline_experiment", true},
                                                    {"hasNestedParams", true}});
  CHECK(one.of("graph").size() == 1);
  CHECK(one.of("system_details").at(0).at("pid") == ::getpid());
  // Other users can see neither the command line's arguments nor the archive.
  CHECK(one.of("system_details").at(0).at("command").size() == 1);
  CHECK(fs::status(folder / "comet" / one.name).permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
  // The names within a line are sorted, and everything is ASCII, as Python writes them.
  CHECK(one.files.at("messages.json").starts_with("{\"payload\":{\"key\":"));
  CHECK(std::ranges::all_of(one.files.at("messages.json"), [](char c) { return c > 0; }));
}

TEST_CASE("an archive is complete after the callback is destroyed, the next training begins, or an error") {
  const Variables none;
  const toy::Folder folder;
  const auto count = [&] { return experiments(folder / "comet").size(); };
  {
    etude::Trainer<CometCallback> trainer(toy::options(arguments(folder)), offline(folder));
    trainer.train();
    CHECK(count() == 0);
    trainer.train();
    CHECK(count() == 1);
  }
  CHECK(count() == 2);
  etude::Trainer<Throws, CometCallback> failing(toy::options(arguments(folder)), Throws{}, offline(folder));
  CHECK_THROWS_AS(failing.train(), std::runtime_error);
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 3);
  CHECK(found[0].key() != found[1].key());
  CHECK(found[2].info.at("customer_error_reported") == true);
  CHECK(found[2].info.at("customer_error_message") == "the third step");
  CHECK(found[2].steps("train/loss") == std::vector{1, 2});
  CHECK(toy::names_in(folder / "comet").size() == 3);
}

TEST_CASE("an archive is complete right after a signal, and doesn't mark the training as failed") {
  const Variables none;
  const toy::Folder folder;
  const OwnHandler handler;
  etude::Trainer<IsTerminated, CometCallback> trainer(toy::options(arguments(folder)), IsTerminated{},
                                                      offline(folder));
  CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
  auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 1);
  CHECK(found[0].steps("train/loss") == std::vector{1, 2, 3});
  CHECK(found[0].info.at("customer_error_reported") == false);
  CHECK(toy::names_in(folder / "comet").size() == 1);
  trainer.train({.resume_from_checkpoint = true});
  trainer.callback<CometCallback>().open_run = {};
  found = experiments(folder / "comet");
  REQUIRE(found.size() == 2);
  CHECK(found[1].key() == found[0].key());
  CHECK(found[1].steps("train/loss") == std::vector{4});
}

TEST_CASE("a training resumed after an evaluation goes to its own experiment, not to the evaluation's") {
  const Variables none;
  const toy::Folder folder;
  etude::Trainer<CometCallback>(toy::options(arguments(folder)), offline(folder)).train();
  {
    etude::Trainer<CometCallback> trainer(toy::options(arguments(folder)), offline(folder));
    trainer.evaluate();
    trainer.train({.resume_from_checkpoint = folder / "out/checkpoint-2"});
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 3);
  CHECK(found[1].metric("eval/loss").size() == 1);
  CHECK(found[1].key() != found[0].key());
  CHECK(found[2].key() == found[0].key());
  CHECK(found[2].info.at("start_time") == found[0].info.at("start_time"));
  CHECK(found[2].steps("train/loss") == std::vector{3, 4});
}

TEST_CASE("a resumed training continues the same experiment, and its archive replaces none") {
  const Variables none;
  const toy::Folder folder;
  etude::Trainer<CometCallback>(toy::options(arguments(folder)), offline(folder)).train();
  for (int i = 0; i < 2; ++i)
    etude::Trainer<CometCallback>(toy::options(arguments(folder)), offline(folder))
        .train({.resume_from_checkpoint = folder / "out/checkpoint-2"});
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 3);
  for (const auto& one : found) {
    CHECK(one.key() == found[0].key());
    CHECK(one.info.at("start_time") == found[0].info.at("start_time"));
    // The archive that is uploaded first creates the experiment.
    CHECK(one.info.at("resume_strategy") == "get_or_create");
  }
  CHECK(found[1].steps("train/loss") == std::vector{3, 4});
  CHECK(found[2].steps("train/loss") == std::vector{3, 4});
  CHECK(found[1].name.size() == found[0].name.size() + 7);
}

TEST_CASE("each trial is an experiment with its name, its hyperparameters and the search's name") {
  const Variables set(Variables::Set{{"COMET_START_EXPERIMENT_NAME", "a variable's"}});
  const toy::Folder folder;
  for (const std::string name : {"run-0", "run-1"}) {
    auto args = arguments(folder);
    args.output_dir = folder / ("search/" + name);
    if (name == "run-1") args.run_name = "digits";
    const etude::HyperparameterTrial trial{.name = name, .params = {{"width", name.back() - '0'}}};
    etude::Trainer<CometCallback>(toy::options(args), offline(folder)).train({.trial = trial});
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 2);
  CHECK(found[0].key() != found[1].key());
  for (std::size_t i : {std::size_t{0}, std::size_t{1}}) {
    CHECK(found[i].others().at("Name") == "run-" + std::to_string(i));
    CHECK(found[i].parameter("trial|width") == std::vector<Json>{i});
  }
  CHECK(found[0].others().at("Search") == "search");
  CHECK(found[1].others().at("Search") == "digits");
}

TEST_CASE("all trainings use a given key") {
  const std::string given = "0123456789abcdefABCDEF0123456789xyz";
  const Variables set(Variables::Set{{"COMET_EXPERIMENT_KEY", given}, {"COMET_MODE", "create"}});
  const toy::Folder folder;
  for (int i = 0; i < 2; ++i)
    etude::Trainer<CometCallback>(toy::options(arguments(folder)), offline(folder)).train();
  etude::Trainer<CometCallback>(toy::options(arguments(folder)), offline(folder))
      .train({.resume_from_checkpoint = folder / "out/checkpoint-2"});
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 3);
  for (const auto& one : found) {
    CHECK(one.key() == given);
    CHECK(one.info.at("resume_strategy") ==
          (one.steps("train/loss").size() == 4 ? "create" : "get_or_create"));
    CHECK(one.info.at("user_provided_experiment_key") == true);
  }
}

TEST_CASE("evaluations before and after a training are in its experiment, and so is a prediction") {
  const Variables none;
  const toy::Folder folder;
  {
    etude::Trainer<CometCallback> trainer(toy::options(arguments(folder)), offline(folder));
    trainer.evaluate();
    trainer.train();
    trainer.evaluate();
    trainer.predict(toy::dataset(1));
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 1);
  CHECK(found[0].metric("eval/loss").size() == 2);
  CHECK(found[0].metric("eval/loss")[0] == std::pair<int, Json>(0, 1.0));  // w = b = 0 at (0, 1)
  CHECK(found[0].metric("eval/loss")[1].first == 4);
  CHECK(found[0].steps("test/loss") == std::vector{4});
  CHECK(found[0].steps("train/loss") == std::vector{1, 2, 3, 4});
}

TEST_CASE("a copy of the callback begins without the original's experiment") {
  const Variables none;
  const toy::Folder folder;
  {
    etude::Trainer<CometCallback> trainer(toy::options(arguments(folder)), offline(folder));
    trainer.train();
    etude::Trainer<CometCallback>(toy::options(arguments(folder)), trainer.callback<CometCallback>()).train();
    CHECK(experiments(folder / "comet").size() == 1);
    trainer.evaluate();
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 2);
  CHECK(found[0].metric("eval/loss").empty());
  CHECK(found[1].metric("eval/loss").size() == 1);
}

TEST_CASE("the files of output_dir are assets, except archives, the spool and hidden files") {
  const Variables set(Variables::Set{{"COMET_LOG_ASSETS", "true"}});
  const toy::Folder folder;
  auto args = arguments(folder);
  args.output_dir = folder / "out/";
  fs::create_directories(folder / "out/a");
  toy::write_text(folder / "out/a/text.tar.gz", "compressed");
  toy::write_text(folder / "out/plain", "");
  toy::write_text(folder / "out/.hidden", "lock");
  auto callback = offline(folder);
  callback.offline_directory = folder / "out/comet";
  callback.spool_directory = folder / "out/spool";
  fs::create_directories(folder / "out/spool");
  toy::write_text(folder / "out/spool/waits", "");
  {
    etude::Trainer<CometCallback> trainer(toy::options(args), callback);
    trainer.train();
    toy::write_text(folder / "out/plain2", "later");
    fs::remove_all(folder / "out/a");
  }
  const auto found = experiments(folder / "out/comet");
  REQUIRE(found.size() == 1);
  std::map<std::string, Json> uploads;
  for (const auto& payload : found[0].of("file_upload"))
    uploads[payload.at("additional_params").at("fileName")] = payload;
  REQUIRE(uploads.contains("out/a/text.tar.gz"));
  const auto& upload = uploads.at("out/a/text.tar.gz");
  CHECK(found[0].files.at(upload.at("file_path")) == "compressed");
  CHECK(upload.at("additional_params").at("extension") == "gz");
  CHECK(upload.at("additional_params").at("step") == 4);
  CHECK(upload.at("upload_type") == "asset");
  CHECK(uploads.at("out/plain").at("additional_params").at("extension").is_null());
  CHECK(uploads.contains("out/checkpoint-4/model.safetensors"));
  for (const auto* name : {"out/.hidden", "out/plain2", "out/spool/waits"})
    CHECK_FALSE(uploads.contains(name));
  for (const auto& [name, payload] : uploads) CHECK_FALSE(name.starts_with("out/comet"));
}

TEST_CASE("a symbolic link's target is kept, and remains when both are gone") {
  const toy::Folder folder;
  const Variables set(Variables::Set{{"COMET_LOG_ASSETS", "1"}});
  auto args = arguments(folder);
  args.save_strategy = etude::SaveStrategy::no;
  fs::create_directories(folder / "out");
  for (const bool online : {false, true}) {
    toy::write_text(folder / "vocabulary", "words");
    fs::create_symlink("../vocabulary", folder / "out/words.txt");
    auto callback = offline(folder);
    callback.online = online;
    callback.api_key = "k";
    callback.url_override = "http://127.0.0.1:9/clientlib";
    {
      etude::Trainer<CometCallback> trainer(toy::options(args), callback);
      trainer.train();
      fs::remove(folder / "vocabulary");
      fs::remove(folder / "out/words.txt");
    }
    std::vector<std::string> kept;
    if (online) {
      for (const auto& entry : fs::recursive_directory_iterator(folder / "spool"))
        if (entry.path().parent_path().filename() == "files") kept.push_back(toy::read_text(entry.path()));
    } else {
      const auto found = experiments(folder / "comet");
      for (const auto& upload : found.at(0).of("file_upload"))
        kept.push_back(found[0].files.at(upload.at("file_path")));
    }
    CHECK(std::ranges::count(kept, "words") == 1);
  }
}

TEST_CASE("it keeps the laws of callbacks") {
  const Variables none;
  const etude::laws::Options options{.varying = {"run_key"}};
  const auto archived = [](const fs::path& folder) {
    CometCallback callback;
    callback.online = false;
    callback.offline_directory = folder / "comet";
    return callback;
  };
  CHECK(etude::laws::broken<CometCallback>(archived, options) == std::vector<std::string>());
  const auto sent = [](const fs::path& folder) {
    CometCallback callback;
    callback.api_key = "k";
    callback.url_override = "http://127.0.0.1:9/clientlib";
    callback.spool_directory = folder / "spool";
    return callback;
  };
  CHECK(etude::laws::broken<CometCallback>(sent, options) == std::vector<std::string>());
}

TEST_CASE("samples are files of the archive, with captions and names of texts as metadata") {
  const Variables none;
  const toy::Folder folder;
  {
    etude::Trainer<CometCallback> trainer(toy::options(arguments(folder)), offline(folder));
    trainer.train();
    trainer.log_text("eval_story", "Once");
    trainer.log_image("eval_cat", torch::zeros({2, 2}), "black");
    CHECK(toy::names_in(folder / "comet").size() == 1);  // the unfinished archive alone
  }
  const auto found = experiments(folder / "comet");
  REQUIRE(found.size() == 1);
  const auto uploads = found[0].of("file_upload");
  REQUIRE(uploads.size() == 2);
  CHECK(uploads[0]["upload_type"] == "text-sample");
  CHECK(uploads[0]["metadata"] == Json{{"name", "eval/story"}});
  CHECK(uploads[1]["upload_type"] == "visualization");
  CHECK(uploads[1]["additional_params"]["figName"] == "eval/cat");
  CHECK(uploads[1]["metadata"] == Json{{"caption", "black"}});
}

}  // namespace integrations_comet_test
