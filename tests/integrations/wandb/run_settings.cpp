#include "etude/integrations/wandb/run_settings.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "integrations/wandb/run_log.hpp"
#include "integrations/wandb/training.hpp"

namespace integrations_wandb_settings_test {

// The effect of options and variables on a run, as seen in its files.

using etude::WandbCallback;
using toy::read_wandb_run;
using toy::wandb_runs;
using toy::wandb::arguments;
using toy::wandb::in;
using toy::wandb::Odd;
using toy::wandb::Trainer;

TEST_CASE("variables set the options that are left open, and options win") {
  const toy::Folder folder;
  const toy::WandbVariables variables({{"WANDB_PROJECT", "p"},
                                       {"WANDB_ENTITY", "e"},
                                       {"WANDB_NAME", "n"},
                                       {"WANDB_RUN_GROUP", "g"},
                                       {"WANDB_JOB_TYPE", "j"},
                                       {"WANDB_NOTES", "o"},
                                       {"WANDB_TAGS", " a, b ,,c"},
                                       {"WANDB_RUN_ID", "mine"},
                                       {"WANDB_DIR", folder},
                                       {"WANDB_MODE", "dryrun"}});
  auto args = arguments(folder);
  Trainer(toy::options(args), Odd{}, WandbCallback{}).train();
  args.run_name = "of the arguments";
  WandbCallback callback;
  callback.project = "another";
  callback.id = "other";
  callback.tags = {"x"};
  Trainer(toy::options(args), Odd{}, callback).train();
  callback.name = "of the options";
  callback.id = "third";
  Trainer(toy::options(args), Odd{}, callback).train();
  std::map<std::string, toy::WandbRunSeen> runs;
  for (const auto& path : wandb_runs(folder / "")) {
    auto run = read_wandb_run(path);
    CHECK(path.filename().string().ends_with("-" + run.id));
    runs[run.id] = run;
  }
  REQUIRE(runs.size() == 3);
  const auto& first = runs.at("mine");
  CHECK((std::vector{first.project, first.entity, first.name, first.group, first.job_type, first.notes} ==
         std::vector<std::string>{"p", "e", "n", "g", "j", "o"}));
  CHECK((first.tags == std::vector<std::string>{"a", "b", "c"}));
  CHECK(runs.at("other").project == "another");
  CHECK(runs.at("other").entity == "e");
  CHECK(runs.at("other").name == "of the arguments");
  CHECK((runs.at("other").tags == std::vector<std::string>{"x"}));
  CHECK(runs.at("third").name == "of the options");
}

TEST_CASE("trials are runs of their own in the group of their search, with hyperparameters in the config") {
  const auto trained = [](std::map<std::string, std::string> variables,
                          const std::optional<std::string>& run_name, const std::string& group) {
    const toy::Folder folder;
    variables["WANDB_DIR"] = folder;
    const toy::WandbVariables set(variables);
    std::map<std::string, toy::WandbRunSeen> runs;
    for (const std::string name : {"run-0", "run-1"}) {
      auto args = arguments(folder);
      args.output_dir = folder / ("search/" + name);
      args.run_name = run_name;
      WandbCallback callback;
      callback.group = group;
      Trainer(toy::options(args), Odd{}, callback)
          .train(
              {.trial = etude::HyperparameterTrial{.name = name, .params = {{"width", name.back() - '0'}}}});
    }
    for (const auto& path : wandb_runs(folder / "")) {
      auto run = read_wandb_run(path);
      runs[run.name] = run;
    }
    REQUIRE(runs.size() == 2);
    CHECK(runs.at("run-0").id != runs.at("run-1").id);
    CHECK(runs.at("run-0").config.at("width") == "0");
    CHECK(runs.at("run-1").config.at("width") == "1");
    CHECK(runs.at("run-0").group == runs.at("run-1").group);
    return runs.at("run-0").group;
  };
  CHECK(trained({{"WANDB_NAME", "n"}, {"WANDB_RUN_ID", "mine"}}, std::nullopt, "") == "search");
  CHECK(trained({{"WANDB_RUN_GROUP", "of a variable"}}, std::nullopt, "") == "of a variable");
  CHECK(trained({{"WANDB_RUN_GROUP", "of a variable"}}, "digits", "") == "digits");
  CHECK(trained({}, "digits", "of the options") == "of the options");
}

TEST_CASE("runs are in .wandb if it exists, and ~ is the home folder") {
  const toy::Folder folder;
  const std::string home = folder;
  const std::string before = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::setenv("HOME", home.c_str(), 1);
  {
    const toy::WandbVariables variables(std::map<std::string, std::string>{{"WANDB_DIR", "~/of mine"}});
    std::filesystem::create_directories(folder / "of mine/.wandb");
    Trainer(toy::options(arguments(folder)), Odd{}, WandbCallback{}).train();
  }
  ::setenv("HOME", before.c_str(), 1);
  CHECK(toy::names_in(folder / "of mine") == toy::Names{".wandb"});
  CHECK(toy::names_in(folder / "of mine/.wandb").size() == 2);  // the run, and the link to the latest
}

TEST_CASE("a disabled callback writes nothing, and an outdated switch gives a warning") {
  const toy::Folder folder;
  for (const auto& variables : {std::map<std::string, std::string>{{"WANDB_MODE", "disabled"}},
                                std::map<std::string, std::string>{{"WANDB_DISABLED", "YES"}}}) {
    const toy::WandbVariables now(variables);
    CHECK_FALSE(WandbCallback::is_available());
    auto args = arguments(folder);
    args.log_level = etude::LogLevel::warning;
    WandbCallback callback;
    callback.dir = folder;
    const auto reported = toy::printed(
        [&] {
          Trainer trainer(toy::options(args), Odd{}, callback);
          trainer.evaluate();
          trainer.train();
        },
        STDERR_FILENO);
    CHECK(toy::contains(reported, "WANDB_DISABLED") == variables.contains("WANDB_DISABLED"));
    CHECK(toy::names_in(folder / "").empty());
  }
  const toy::WandbVariables none;
  CHECK(WandbCallback::is_available());
}

TEST_CASE("unless offline is configured, a message says how to upload the run") {
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::passive;
  auto callback = in(folder);
  for (const std::string key : {"", "0123456789"})
    for (const std::string mode : {"offline", "dryrun", "online", ""}) {
      const toy::WandbVariables variables(std::map<std::string, std::string>{{"WANDB_API_KEY", key}});
      callback.mode = mode;
      const auto reported =
          toy::printed([&] { Trainer(toy::options(args), Odd{}, callback).train(); }, STDERR_FILENO);
      CHECK(toy::contains(reported, "`wandb sync ") == (mode != "offline" && mode != "dryrun"));
      CHECK_FALSE(toy::contains(reported, "0123456789"));
    }
}

struct WorkingDirectory {
  std::filesystem::path before = std::filesystem::current_path();
  explicit WorkingDirectory(const std::filesystem::path& path) { std::filesystem::current_path(path); }
  ~WorkingDirectory() { std::filesystem::current_path(before); }
};

TEST_CASE("wandb's settings files come after variables, the folder's before the user's") {
  const toy::Folder folder;
  const WorkingDirectory here(folder / "");
  std::filesystem::create_directories(folder / "config");
  std::filesystem::create_directories(folder / "wandb");
  const auto write = [&](const std::string& of_person, const std::string& of_folder) {
    toy::write_text(folder / "config/settings", of_person);
    toy::write_text(folder / "wandb/settings", of_folder);
  };
  const auto run = [&](std::map<std::string, std::string> variables) {
    const toy::Folder place;
    variables["WANDB_CONFIG_DIR"] = folder / "config";
    const toy::WandbVariables now(variables);
    WandbCallback callback;
    callback.dir = place;
    const bool is_available = WandbCallback::is_available();
    Trainer(toy::options(arguments(place)), Odd{}, callback).train();
    const auto runs = wandb_runs(place / "");
    CHECK(runs.size() == (is_available ? 1 : 0));
    return is_available ? read_wandb_run(runs.at(0)) : toy::WandbRunSeen();
  };
  write("[default]\nentity = mine\nproject = p\n", "[default]\nproject = q\n[other]\nentity = theirs\n");
  CHECK(run({}).entity == "mine");
  CHECK(run({}).project == "q");
  CHECK(run({{"WANDB_PROJECT", "r"}, {"WANDB_ENTITY", "e"}}).project == "r");
  CHECK(run({{"WANDB_PROJECT", "r"}, {"WANDB_ENTITY", "e"}}).entity == "e");
  write("[default]\nmode = disabled\n", "");
  CHECK(run({}).id.empty());
  CHECK_FALSE(run({{"WANDB_MODE", "offline"}}).id.empty());
  write("[default]\nmode = disabled\n", "[default]\nmode = online\n");
  CHECK_FALSE(run({}).id.empty());
  write("[default]\ndisabled = true\nmode = offline\n", "");  // as `wandb offline` of older releases did
  CHECK_FALSE(run({}).id.empty());

  const auto fault = [&] { return toy::fault_of<etude::ArgumentError>([&] { run({}); }); };
  write("[default]\nmode = maybe\n", "");
  CHECK(toy::contains(fault(), "mode of wandb's settings is 'maybe': must be one of online"));
  write("[default\n", "");
  CHECK(toy::contains(fault(), "config/settings can't be read: "));
}

TEST_CASE(
    "a sweep's run has the sweep's id and project, and a message reports that no agent has set its "
    "parameters") {
  const toy::Folder folder;
  const toy::WandbVariables variables(
      {{"WANDB_SWEEP_ID", "s1"}, {"WANDB_RUN_ID", "trial"}, {"WANDB_PROJECT", "of the sweep"}});
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  auto callback = in(folder);
  callback.id = "mine";
  callback.project = "of mine";
  callback.entity = "me";
  const auto reported = toy::printed(
      [&] {
        Trainer trainer(toy::options(args), Odd{}, callback);
        trainer.train();
        trainer.evaluate();
      },
      STDERR_FILENO);
  const auto line = reported.find("to sweep s1");
  REQUIRE(line != reported.npos);
  CHECK(reported.find("to sweep s1", line + 1) == reported.npos);
  const auto run = read_wandb_run(wandb_runs(folder / "").at(0));
  CHECK((std::vector{run.sweep_id, run.id, run.project, run.entity} ==
         std::vector<std::string>{"s1", "trial", "of the sweep", "me"}));
}

TEST_CASE("wrong options are refused when training begins, by name") {
  const toy::Folder folder;
  const toy::WandbVariables none;
  const auto fault = [&](auto change) {
    auto callback = in(folder);
    change(callback);
    return toy::fault_of<etude::ArgumentError>(
        [&] { Trainer(toy::options(arguments(folder)), Odd{}, callback).train(); });
  };
  CHECK(fault([](auto& c) { c.mode = "maybe"; }) ==
        "mode is 'maybe': must be one of online, offline, disabled, shared, dryrun");
  CHECK(toy::contains(fault([](auto& c) { c.log_model = "all"; }), "log_model is 'all': must be one of end"));
  CHECK(toy::contains(fault([](auto& c) { c.watch = "yes"; }), "watch is 'yes': must be one of gradients"));
  CHECK(toy::contains(fault([](auto& c) { c.resume = "x"; }), "resume is 'x': must be one of allow, must"));
  CHECK(toy::contains(fault([](auto& c) { c.id = "a/b"; }), "id is 'a/b'"));
  CHECK(toy::contains(fault([](auto& c) { c.project = "a/b"; }), "project is 'a/b'"));
  CHECK(toy::contains(fault([](auto& c) { c.resume = "must"; }), "resume is 'must': must have the run"));
  toy::write_text(folder / "file", "");
  CHECK(toy::contains(fault([&](auto& c) { c.dir = folder / "file"; }), "dir: must be a folder"));
  CHECK(toy::names_in(folder / "") == toy::Names{"file"});
}

TEST_CASE("variables that Hugging Face's callback warns about give a warning") {
  const toy::Folder folder;
  const toy::WandbVariables variables({{"WANDB_LOG_MODEL", "often"}, {"WANDB_WATCH", "tv"}});
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto reported =
      toy::printed([&] { Trainer(toy::options(args), Odd{}, in(folder)).train(); }, STDERR_FILENO);
  CHECK(toy::contains(reported, "WANDB_LOG_MODEL is 'often', which is taken as false"));
  CHECK(toy::contains(reported, "WANDB_WATCH is 'tv', which is taken as false"));
}

}  // namespace integrations_wandb_settings_test
