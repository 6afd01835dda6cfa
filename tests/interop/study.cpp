/// Runs trials of a study: study JOURNAL TRIALS PRUNER. Prints the number of reports of each trial, and
/// whether it was pruned. study JOURNAL importances DIRECTION prints the importance of each hyperparameter,
/// study JOURNAL times the times of each trial, and study JOURNAL trials the trials, a line of JSON each.

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "etude/reflect/json.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/study.hpp"

namespace {

/// A curve that is the same in study.py.
double reported(std::int64_t number, std::int64_t step) {
  return static_cast<double>((number * 7919 + 13) % 101) / 10 + 5.0 / static_cast<double>(step) +
         static_cast<double>((number * step * 31) % 7) / 10;
}

int tell_importances(const char* journal, const std::string& direction) {
  const auto way =
      direction == "maximize" ? etude::StudyDirection::maximize : etude::StudyDirection::minimize;
  etude::Study study({.study_name = "digits", .directions = {way}, .journal = journal});
  for (const auto& [name, importance] : etude::param_importances(study.trials(), way))
    fmt::print("{} {}\n", name, importance);
  return 0;
}

int tell_times(const char* journal) {
  etude::Study study({.study_name = "digits", .journal = journal});
  for (const auto& trial : study.trials())
    fmt::print("{:.6f} {:.6f}\n", trial.datetime_start.value(), trial.datetime_complete.value());
  return 0;
}

int tell_trials(const char* journal) {
  etude::Study study({.study_name = "digits", .journal = journal});
  for (const auto& trial : study.trials()) {
    nlohmann::ordered_json params = nlohmann::ordered_json::object(), reports = params;
    for (const auto& [name, number] : trial.params) params[name] = trial.param(name);
    for (const auto& [step, value] : trial.intermediate_values)
      reports[std::to_string(step)] = etude::to_json_value(value);
    fmt::print("{}\n", nlohmann::ordered_json{{"state", etude::to_string(trial.state)},
                                              {"values", etude::to_json_value(trial.values)},
                                              {"params", params},
                                              {"reports", reports},
                                              {"user_attrs", trial.user_attrs}}
                           .dump());
  }
  return 0;
}

}  // namespace

int main(int, char** argv) {
  if (std::string(argv[2]) == "importances") return tell_importances(argv[1], argv[3]);
  if (std::string(argv[2]) == "times") return tell_times(argv[1]);
  if (std::string(argv[2]) == "trials") return tell_trials(argv[1]);
  using Successive = etude::SuccessiveHalvingPruner;
  const std::map<std::string, std::shared_ptr<const etude::Pruner>> pruners{
      {"none", nullptr},
      {"median", std::make_shared<etude::MedianPruner>()},
      {"percentile", std::make_shared<etude::PercentilePruner>(etude::PercentilePruner::Options{
                         .percentile = 25, .n_warmup_steps = 2, .interval_steps = 3})},
      {"halving",
       std::make_shared<Successive>(Successive::Options{.min_resource = 1, .reduction_factor = 2})},
      {"halving by itself", std::make_shared<Successive>()}};
  etude::Study study({.study_name = "digits", .journal = argv[1], .pruner = pruners.at(argv[3])});
  for (int i = 0; i < std::atoi(argv[2]); ++i) {
    auto trial = study.ask();
    const double x = trial.suggest_float("x", {.low = -5, .high = 5});
    trial.suggest_float("lr", {.low = 1e-4, .high = 1, .log = true});
    trial.suggest_int("layers", {.low = 2, .high = 10, .step = 2});
    trial.suggest_categorical<std::string>("optim", {"sgd", "adamw"});
    trial.set_user_attr("by", "C++");
    std::int64_t step = 0;
    bool prune = false;
    while (!prune && step < 16) {
      trial.report(reported(trial.number(), step + 1), step + 1);
      ++step;
      prune = trial.should_prune();
    }
    fmt::print("{} {}\n", step, prune ? 1 : 0);
    if (prune)
      study.tell(trial, etude::TrialState::pruned);
    else
      study.tell(trial, x * x);
  }
}
