#include "etude/integrations/wandb.hpp"

#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/printed.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/testing/laws.hpp"
#include "integrations/wandb/run_log.hpp"
#include "integrations/wandb/training.hpp"

namespace integrations_wandb_test {

using etude::WandbCallback;
using toy::read_wandb_run;
using toy::wandb_runs;
using toy::WandbValues;
using toy::wandb::arguments;
using toy::wandb::in;
using toy::wandb::Odd;
using toy::wandb::Trainer;

std::string plain(const nlohmann::json& number) { return fmt::format("{}", number.get<double>()); }

TEST_CASE("every log is a row, under the names that Hugging Face gives them, and part of the summary") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  std::vector<etude::LogEntry> history;
  {
    Trainer trainer(toy::options(arguments(folder)), Odd{}, in(folder));
    trainer.train();
    trainer.evaluate();
    history = trainer.state().log_history;
  }
  REQUIRE(wandb_runs(folder / "").size() == 1);
  const auto run = read_wandb_run(wandb_runs(folder / "")[0]);
  REQUIRE(run.rows.size() == 6);  // four steps, the summary of the training, and the evaluation
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(run.rows[i].at("train/loss") == plain(history[i].at("loss")));
    CHECK(run.rows[i].at("train/epoch") == plain(history[i].at("epoch")));
    CHECK(run.rows[i].at("train/global_step") == std::to_string(i + 1));
    CHECK(run.rows[i].at("_step") == std::to_string(i));
    CHECK(run.rows[i].contains("_timestamp"));
    CHECK(run.rows[i].contains("_runtime"));
  }
  CHECK(run.rows[1].at("train/nan") == "NaN");  // nlohmann's parser and writer would turn it into null
  CHECK(run.rows[1].at("train/minus_inf") == "-Infinity");
  CHECK_FALSE(run.rows[4].contains("train/train_loss"));
  CHECK_FALSE(run.rows[4].contains("train/train_runtime"));
  CHECK(run.rows[4].at("train/epoch") == "2");
  CHECK(run.rows[5].at("eval/loss") == plain(history[5].at("eval_loss")));
  CHECK(run.summary.at("train_loss") == plain(history[4].at("train_loss")));
  CHECK(run.summary.contains("train_samples_per_second"));
  CHECK(run.summary.at("eval/loss") == run.rows[5].at("eval/loss"));
  CHECK(run.summary.at("train/loss") == run.rows[3].at("train/loss"));
  CHECK(run.summary.at("_step") == "5");
  CHECK(run.summary.at("_wandb > runtime") == "0");
  CHECK(run.exit_code == 0);
}

TEST_CASE("the config is the arguments' and the user's, and the arguments win") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  {
    auto callback = in(folder);
    callback.config = {{"learning_rate", 7}, {"layers", 2}, {"odd", std::numeric_limits<double>::infinity()}};
    Trainer(toy::options(arguments(folder)), Odd{}, callback).train();
  }
  const auto run = read_wandb_run(wandb_runs(folder / "")[0]);
  CHECK(run.config.at("learning_rate") == "0.1");
  CHECK(run.config.at("layers") == "2");
  CHECK(run.config.at("odd") == "\"Infinity\"");
  CHECK(run.config.at("lr_scheduler_type") == "\"constant\"");
  CHECK(run.config.at("_wandb") == "{}");
  CHECK(run.config.at("model/num_parameters") == "2");
  CHECK(run.project == "huggingface");
  CHECK(run.name.empty());
  CHECK(run.id.size() == 8);
  CHECK(run.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos);
}

TEST_CASE("a resumed training continues its run, in a new folder") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  auto args = arguments(folder);
  args.save_strategy = etude::SaveStrategy::steps;
  args.save_steps = 2;
  {
    Trainer trainer(toy::options(args), Odd{3}, in(folder));
    CHECK_THROWS_AS(trainer.train(), std::runtime_error);
  }
  Trainer(toy::options(args), Odd{}, in(folder)).train({.resume_from_checkpoint = true});
  const auto folders = wandb_runs(folder / "");
  REQUIRE(folders.size() == 2);
  const auto failed = read_wandb_run(folders[0]), resumed = read_wandb_run(folders[1]);
  REQUIRE(failed.rows.size() >= 2);
  REQUIRE_FALSE(resumed.rows.empty());
  CHECK(failed.exit_code == 1);
  CHECK_FALSE(failed.resumed);
  CHECK(resumed.exit_code == 0);
  CHECK(resumed.id == failed.id);
  CHECK(resumed.resumed);
  CHECK(resumed.starting_step == 2);
  CHECK(resumed.rows[0].at("_step") == "2");
  CHECK(resumed.rows[0].at("train/global_step") == "3");
  CHECK(std::stod(resumed.rows[0].at("_runtime")) > std::stod(failed.rows[1].at("_runtime")));

  auto allowed = in(folder);
  allowed.resume = "allow";
  Trainer(toy::options(args), Odd{}, allowed).train();  // with an unknown id
  auto fresh = in(folder);
  fresh.resume = "never";
  Trainer(toy::options(args), Odd{}, fresh).train({.resume_from_checkpoint = folder / "out/checkpoint-2"});
  auto other = in(folder);
  other.id = "other";
  Trainer(toy::options(args), Odd{}, other).train({.resume_from_checkpoint = folder / "out/checkpoint-2"});
  int of_it = 0, of_others = 0;
  for (const auto& path : wandb_runs(folder / "")) {
    const auto run = read_wandb_run(path);
    if (run.id == failed.id) {
      ++of_it;
      continue;
    }
    ++of_others;
    CHECK_FALSE(run.resumed);
    REQUIRE_FALSE(run.rows.empty());
    CHECK(run.rows[0].at("_step") == "0");
  }
  CHECK(of_it == 2);
  CHECK(of_others == 3);
}

TEST_CASE("evaluations before the training belong to its run, and a second training is another") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  {
    Trainer trainer(toy::options(arguments(folder)), Odd{}, in(folder));
    trainer.evaluate();
    trainer.train();
    CHECK(read_wandb_run(trainer.callback<WandbCallback>().folder()).exit_code == std::nullopt);
    trainer.predict(toy::dataset(2));
    trainer.train();
  }
  std::vector<std::size_t> rows;
  std::vector<std::string> ids;
  for (const auto& path : wandb_runs(folder / "")) {
    const auto run = read_wandb_run(path);
    CHECK(run.exit_code == 0);
    rows.push_back(run.rows.size());
    ids.push_back(run.id);
    if (run.rows.size() == 7) {
      CHECK(run.rows[0].contains("eval/loss"));
      CHECK(run.rows[6].contains("test/loss"));
    }
  }
  std::sort(rows.begin(), rows.end());
  REQUIRE(rows == std::vector<std::size_t>{5, 7});
  CHECK(ids[0] != ids[1]);
}

TEST_CASE("with resume=auto a run continues one that wasn't finished") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  auto callback = in(folder);
  callback.resume = "auto";
  const auto args = arguments(folder);
  {
    Trainer trainer(toy::options(args), Odd{3}, callback);
    CHECK_THROWS(trainer.train());
  }
  CHECK(std::filesystem::exists(folder / "wandb/wandb-resume.json"));
  Trainer(toy::options(args), Odd{}, callback).train();
  CHECK_FALSE(std::filesystem::exists(folder / "wandb/wandb-resume.json"));
  Trainer(toy::options(args), Odd{}, callback).train();
  std::vector<toy::WandbRunSeen> runs;
  for (const auto& path : wandb_runs(folder / "")) runs.push_back(read_wandb_run(path));
  REQUIRE(runs.size() == 3);
  CHECK(std::count_if(runs.begin(), runs.end(), [](const auto& run) { return run.resumed; }) == 1);
  CHECK(std::count_if(runs.begin(), runs.end(), [&](const auto& run) { return run.id == runs[0].id; }) <= 2);
}

TEST_CASE("attempts with batches that are too large leave no final model") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  auto callback = in(folder);
  callback.log_model = "end";
  Trainer(toy::first_too_large(arguments(folder)), Odd{}, callback).train();
  std::int64_t final_models = 0;
  for (const auto& folder_of_run : wandb_runs(folder / ""))
    for (const auto& artifact : read_wandb_run(folder_of_run).artifacts)
      final_models += artifact.aliases.front() == "final_model";
  CHECK(final_models == 1);
}

TEST_CASE("models and checkpoints are artifacts if configured") {
  const toy::WandbVariables none;
  for (const std::string log_model : {"false", "end", "checkpoint"}) {
    const toy::Folder folder;
    auto args = arguments(folder);
    args.save_strategy = etude::SaveStrategy::epoch;
    args.save_total_limit = 1;
    args.run_name = "night/7";
    auto callback = in(folder);
    callback.log_model = log_model;
    Trainer(toy::options(args), Odd{}, callback).train();
    const auto run = read_wandb_run(wandb_runs(folder / "")[0]);
    std::vector<std::string> aliases;
    for (const auto& artifact : run.artifacts) {
      REQUIRE_FALSE(artifact.files.empty());
      CHECK(artifact.name == "model-night-7");
      CHECK(artifact.aliases.back() == "latest");
      aliases.push_back(artifact.aliases.front());
      for (const auto& [path, local] : artifact.files) {
        CHECK(std::filesystem::exists(local));
        CHECK(local.find((folder / "out").string()) == std::string::npos);
      }
    }
    const std::map<std::string, std::vector<std::string>> expected{
        {"false", {}},
        {"end", {"base_model", "final_model"}},
        {"checkpoint", {"base_model", "epoch_1.0", "epoch_2.0", "final_model"}}};
    REQUIRE(aliases == expected.at(log_model));
    if (log_model == "checkpoint") {
      CHECK(run.artifacts[1].files.contains("model.safetensors"));
      CHECK(nlohmann::json::parse(run.artifacts[1].metadata)["train/global_step"] == 2);
      CHECK(nlohmann::json::parse(run.artifacts[3].metadata)["final_model"] == true);
      CHECK(run.artifacts[3].files.contains("model_architecture.txt"));
    }
  }
}

TEST_CASE("watching adds histograms to the row after every hundredth step") {
  const toy::WandbVariables none;
  const toy::Silence silence;
  for (const std::string watch : {"gradients", "parameters", "all", "false"}) {
    const toy::Folder folder;
    auto args = arguments(folder);
    args.max_steps = 201;
    args.logging_steps = 1;
    auto callback = in(folder);
    callback.watch = watch;
    Trainer(toy::options(args), Odd{}, callback).train();
    const auto run = read_wandb_run(wandb_runs(folder / "")[0]);
    REQUIRE(run.rows.size() == 202);  // 201 steps and the summary
    for (std::size_t i = 0; i < run.rows.size(); ++i) {
      const bool is_due = i == 99 || i == 199;
      CHECK(run.rows[i].contains("gradients/weight") == (is_due && (watch == "gradients" || watch == "all")));
      CHECK(run.rows[i].contains("parameters/bias") == (is_due && (watch == "parameters" || watch == "all")));
    }
  }
}

TEST_CASE("a file that becomes unwritable is reported once, and stops nothing") {
  const toy::Folder folder;
  const toy::WandbVariables none;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  args.save_strategy = etude::SaveStrategy::epoch;
  auto callback = in(folder);
  callback.log_model = "checkpoint";
  struct Spoils {
    void on(const etude::StepEnd& e) {
      if (e.state.global_step == 1)
        for (const auto& run : wandb_runs(folder)) {
          std::filesystem::remove_all(run / "artifacts");
          toy::write_text(run / "artifacts", "in the way");
        }
    }
    std::filesystem::path folder = {};
  };
  const auto reported = toy::printed(
      [&] {
        etude::Trainer<Spoils, WandbCallback> trainer(toy::options(args), Spoils{folder / ""}, callback);
        CHECK(trainer.train().global_step == 4);
      },
      STDERR_FILENO);
  CHECK(toy::contains(reported, "etude: warning: WandbCallback: "));
  CHECK(read_wandb_run(wandb_runs(folder / "")[0]).rows.size() == 5);
}

/// Sends SIGTERM at the end of a step, or of the training (0).
struct Signals {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == at) ::raise(SIGTERM);
  }
  void on(const etude::TrainEnd&) {
    if (at == 0) ::raise(SIGTERM);
  }
  int at = 0;
};

TEST_CASE("a signal ends the run during the training, and only a complete training has a final model") {
  const toy::WandbVariables none;
  void (*const before)(int) = ::signal(SIGTERM, [](int) {});
  for (const int at : {0, 2}) {
    const toy::Folder folder;
    auto args = arguments(folder);
    args.save_strategy = etude::SaveStrategy::steps;
    args.save_steps = 100;
    auto callback = in(folder);
    callback.log_model = "checkpoint";
    callback.resume = "auto";
    etude::Trainer<Signals, WandbCallback> trainer(toy::options(args), Signals{at}, callback);
    CHECK_THROWS_AS(trainer.train(), etude::Interrupted);
    // Without a handler the signal would have ended the process.
    const auto run = read_wandb_run(wandb_runs(folder / "").at(0));
    CHECK(run.exit_code == (at == 2 ? 255 : 0));
    std::vector<std::string> aliases;
    for (const auto& artifact : run.artifacts) aliases.push_back(artifact.aliases.front());
    CHECK((aliases == (at == 2 ? std::vector<std::string>{"base_model", "epoch_1.0"}
                               : std::vector<std::string>{"base_model", "epoch_2.0", "final_model"})));
    CHECK(std::filesystem::exists(folder / "wandb/wandb-resume.json") == (at == 2));
  }
  ::signal(SIGTERM, before);
}

TEST_CASE("an evaluation that throws doesn't mark a successful training's run as failed") {
  const toy::WandbVariables none;
  struct Throws {
    void on(const etude::PredictionStep&) {
      if (on_) throw std::runtime_error("on purpose");
    }
    bool on_ = false;
  };
  for (const bool in_training : {false, true}) {
    const toy::Folder folder;
    auto args = arguments(folder);
    if (in_training) args.eval_strategy = etude::IntervalStrategy::epoch;
    {
      etude::Trainer<Throws, WandbCallback> trainer(toy::options(args), Throws{in_training}, in(folder));
      if (in_training) {
        CHECK_THROWS(trainer.train());
      } else {
        trainer.train();
        trainer.callback<Throws>().on_ = true;
        CHECK_THROWS(trainer.evaluate());
        trainer.callback<Throws>().on_ = false;
        trainer.evaluate();
      }
    }
    const auto run = read_wandb_run(wandb_runs(folder / "").at(0));
    CHECK(run.exit_code == (in_training ? 1 : 0));
    CHECK(run.rows.size() == (in_training ? 3 : 6));
  }
}

TEST_CASE("the written folder is reported once at the end, and again if there is more") {
  const toy::WandbVariables none;
  const auto rows_reported = [](bool trains, bool evaluates) {
    const toy::Folder folder;
    auto args = arguments(folder);
    args.log_level = etude::LogLevel::info;
    const auto reported = toy::printed(
        [&] {
          Trainer trainer(toy::options(args), Odd{}, in(folder));
          if (trains) trainer.train();
          if (evaluates) trainer.evaluate();
        },
        STDERR_FILENO);
    std::string counts;
    for (auto at = reported.find(" rows of run "); at != reported.npos;
         at = reported.find(" rows of run ", at + 1))
      counts += reported[at - 1];
    return counts;
  };
  CHECK(rows_reported(true, false) == "5");
  CHECK(rows_reported(true, true) == "56");
  CHECK(rows_reported(false, true) == "1");
  CHECK(rows_reported(false, false).empty());
}

TEST_CASE("an error of the last artifact is reported when the callback is destroyed") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  auto callback = in(folder);
  callback.log_model = "end";
  struct Spoils {
    void on(const etude::StepEnd&) {
      for (const auto& run : wandb_runs(folder)) {
        std::filesystem::create_directories(run / "artifacts/1");
        // A file that can be opened but not read.
        std::error_code there;
        std::filesystem::create_symlink("/proc/self/mem", run / "artifacts/1/unreadable", there);
      }
    }
    std::filesystem::path folder = {};
  };
  const auto reported = toy::printed(
      [&] {
        etude::Trainer<Spoils, WandbCallback>(toy::options(args), Spoils{folder / ""}, callback).train();
      },
      STDERR_FILENO);
  const auto fault = reported.find("wasn't logged");
  REQUIRE(fault != reported.npos);
  CHECK(reported.find("wasn't logged", fault + 1) == reported.npos);
}

TEST_CASE("the laws of callbacks are kept") {
  const toy::WandbVariables none;
  const auto make = [](const std::filesystem::path& folder) {
    WandbCallback callback;
    callback.mode = "offline";
    callback.dir = folder;
    callback.log_model = "checkpoint";
    callback.watch = "all";
    return callback;
  };
  CHECK(etude::laws::broken<WandbCallback>(make, {.varying = {"run_id"}}) == std::vector<std::string>());
}

TEST_CASE("samples are a row of their own, and one that can't be written is left out and reported") {
  const toy::WandbVariables none;
  const toy::Folder folder;
  auto args = arguments(folder);
  args.log_level = etude::LogLevel::warning;
  const auto reported = toy::printed(
      [&] {
        etude::Trainer<WandbCallback> trainer(toy::options(args), in(folder));
        trainer.train();
        toy::write_text(wandb_runs(folder / "")[0] / "files/media", "in the way");
        trainer.log_image("eval_cat", torch::zeros({2, 2}));
        std::filesystem::remove(wandb_runs(folder / "")[0] / "files/media");
        trainer.log_samples({etude::text_sample("eval_story", "a < b"), etude::text_sample("eval_story", "b"),
                             etude::image_sample("eval_cat", torch::zeros({2, 3}), "black")});
      },
      STDERR_FILENO);
  CHECK(toy::contains(reported, "WandbCallback: the sample eval_cat is left out: "));
  const auto path = wandb_runs(folder / "")[0];
  const auto run = read_wandb_run(path);
  REQUIRE(run.rows.size() == 7);
  CHECK_FALSE(run.rows[5].contains("eval/cat"));
  const auto& row = run.rows[6];
  CHECK(row.at("_step") == "6");
  CHECK(row.at("train/global_step") == "4");
  const auto story = nlohmann::json::parse(row.at("eval/story")),
             cat = nlohmann::json::parse(row.at("eval/cat"));
  CHECK(story["_type"] == "html-file");
  CHECK(toy::contains(toy::read_text(path / "files" / story["path"].get<std::string>()), ">b</pre>"));
  CHECK(cat["_type"] == "image-file");
  CHECK(cat["width"] == 3);
  CHECK(cat["height"] == 2);
  CHECK(cat["caption"] == "black");
  CHECK(std::filesystem::file_size(path / "files" / cat["path"].get<std::string>()) == cat["size"]);
}

}  // namespace integrations_wandb_test
