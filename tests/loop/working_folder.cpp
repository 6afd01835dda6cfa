// Relative paths are relative to the folder in which the trainer is built, even if the program changes its
// folder.

#include <doctest/doctest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/file_logger.hpp"
#include "etude/callbacks/predictions_to_csv.hpp"
#include "etude/callbacks/save_best_model.hpp"
#include "etude/callbacks/save_training_state.hpp"
#include "etude/callbacks/top_k_checkpoints.hpp"
#include "etude/integrations/shared/tracked_run.hpp"

namespace loop_working_folder_test {

/// Changes the working folder for as long as it lives.
class In {
 public:
  explicit In(const std::filesystem::path& folder) { std::filesystem::current_path(folder); }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  ~In() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

/// Changes to another folder when a step begins, once the other callbacks have handled TrainBegin.
struct Wanders {
  std::filesystem::path to;
  std::string given = {};
  std::set<std::string> reported = {};
  void on(const etude::TrainBegin& e) { given = etude::detail::tracked_arguments(e).output_dir; }
  void on(const etude::StepBegin&) { std::filesystem::current_path(to); }
  void on(const etude::CheckpointLoaded& e) { reported.insert(e.checkpoint.string()); }
  void on(const etude::Save& e) { reported.insert(e.checkpoint.string()); }
};

etude::TrainerOptions relative_options() {
  auto args = toy::arguments();
  toy::save_to("out", args);
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 1;
  args.eval_strategy = etude::IntervalStrategy::steps;
  args.eval_steps = 1;
  args.load_best_model_at_end = true;
  return toy::options(args);
}

using Wandering = etude::Trainer<Wanders, etude::CSVLoggerCallback, etude::JSONLinesLoggerCallback,
                                 etude::PredictionsToCSVCallback, etude::SaveBestModelCallback,
                                 etude::TopKCheckpointsCallback, etude::SaveTrainingStateCallback>;

TEST_CASE("a training's files stay together, and don't follow the program to another folder") {
  const toy::Folder start, elsewhere;
  const auto here = std::filesystem::canonical(start / "");
  const In in(here);
  Wandering trainer(relative_options(), Wanders{.to = elsewhere / ""},
                    etude::SaveBestModelCallback{.save_path = "best", .load_saved_checkpoint = false},
                    etude::TopKCheckpointsCallback{.save_dir = "top"},
                    etude::SaveTrainingStateCallback{.save_dir = "states"});
  trainer.train();
  trainer.save_metrics("all", {{"loss", 1}});
  trainer.save_state();
  trainer.evaluate();
  CHECK(toy::names_in(elsewhere / "").empty());
  CHECK(toy::names_in(here) == toy::Names{"out", "best", "top", "states"});
  const auto names = toy::names_in(here / "out");
  for (const auto* name : {"checkpoint-1", "checkpoint-2", "latest", "trainer_state.json", "metrics.csv",
                           "metrics.jsonl", "all_results.json"})
    CHECK_MESSAGE(names.contains(name), name);
  CHECK(toy::names_in(here / "top").size() == 2);
  CHECK(toy::names_in(here / "states") == toy::Names{"final"});
  CHECK(trainer.args().output_dir == (here / "out").string());
  CHECK(trainer.callback<Wanders>().given == "out");  // for the names of runs
}

TEST_CASE("a checkpoint that is resumed by a relative path is found and reported from elsewhere too") {
  const toy::Folder start, elsewhere;
  const auto here = std::filesystem::canonical(start / "");
  const In in(here);
  etude::Trainer<>(relative_options()).train();
  etude::Trainer<Wanders> trainer(relative_options(), Wanders{.to = elsewhere / ""});
  trainer.train({.resume_from_checkpoint = "out/checkpoint-1"});
  CHECK(trainer.state().global_step == 2);
  CHECK(trainer.callback<Wanders>().reported ==
        std::set{(here / "out" / "checkpoint-1").string(), (here / "out" / "checkpoint-2").string()});
}

TEST_CASE("a relative output_dir in a folder with an unusable name, or one that is gone, is refused") {
  const toy::Folder start;
  const auto fault = [] {
    try {
      etude::Trainer<> trainer(relative_options());
    } catch (const etude::ArgumentError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto latin = start / "caf\xE9";
  std::filesystem::create_directory(latin);
  const In in(latin);
  CHECK(fault() ==
        "output_dir is 'out', and the working folder has a name that isn't UTF-8: must be an absolute path "
        "in this case");
  std::filesystem::remove(latin);
  CHECK(fault() ==
        "output_dir is 'out', and the working folder is gone: must be an absolute path in this case");
}

}  // namespace loop_working_folder_test
