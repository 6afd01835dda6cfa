#pragma once

#ifndef ETUDE_SEARCH
#error "etude/tune/hyperparameter_search.hpp needs a library: link etude::search"
#endif

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"
#include "etude/study/distribution.hpp"
#include "etude/study/pruners.hpp"
#include "etude/study/samplers.hpp"
#include "etude/study/trial.hpp"
#include "etude/trainer_options.hpp"
#include "etude/tune/search_fields.hpp"

namespace etude::inline v0 {

/// `qmc` is Sobol's sequence; `grid` needs choices or steps.
ETUDE_ENUM(SearchSampler, tpe, random, qmc, grid);
/// With `percentile`, the best third continues after each evaluation.
ETUDE_ENUM(SearchPruner, none, median, percentile, halving);
ETUDE_ENUM(SearchDriver, none, stdio);

/// The hyperparameters to search: a list, or a function that asks the trial for each one, possibly depending
/// on the values of earlier ones:
///
///     .hp_space = {{"learning_rate", etude::FloatRange{.low = 1e-5, .high = 1e-1, .log = true}}}
///     .hp_space = [](etude::Trial& trial) {
///       if (trial.suggest_categorical("optim", {"sgd", "adamw_torch"}) == "sgd") ...
///     }
class SearchSpace {
 public:
  struct Entry {
    std::string name;
    Distribution distribution;
  };

  SearchSpace() = default;
  SearchSpace(std::initializer_list<Entry> entries) : entries_(entries) {}
  SearchSpace(std::vector<Entry> entries) : entries_(std::move(entries)) {}
  template <std::invocable<Trial&> Function>
  SearchSpace(Function function) : function_(std::move(function)) {
    static_assert(std::is_void_v<std::invoke_result_t<Function&, Trial&>>,
                  "etude: hp_space returns nothing: the trial keeps each value that it suggests");
  }

  explicit operator bool() const { return function_ || !entries_.empty(); }
  /// Empty if the space is a function.
  const std::vector<Entry>& entries() const { return entries_; }
  void suggest(Trial& trial) const;

 private:
  std::vector<Entry> entries_;
  std::function<void(Trial&)> function_;
};

/// Computes a trial's objective value, or several, from an evaluation's metrics.
class ComputeObjective {
 public:
  ComputeObjective() = default;
  template <class Function>
    requires std::is_invocable_r_v<double, Function&, const Metrics&> ||
             std::is_invocable_r_v<std::vector<double>, Function&, const Metrics&>
  ComputeObjective(Function function) {
    if constexpr (std::is_invocable_r_v<double, Function&, const Metrics&>)
      function_ = [function](const Metrics& metrics) mutable {
        return std::vector{double(function(metrics))};
      };
    else
      function_ = std::move(function);
  }

  explicit operator bool() const { return static_cast<bool>(function_); }
  std::vector<double> operator()(const Metrics& metrics) const { return function_(metrics); }

 private:
  std::function<std::vector<double>(const Metrics&)> function_;
};

/// Options of `hyperparameter_search`, named as in Hugging Face's Trainer and Optuna. They are also
/// command-line arguments.
struct HyperparameterSearchOptions {
  ETUDE_STRUCT(
      HyperparameterSearchOptions,
      (std::int64_t, n_trials,
       "trials of the study in all, with those of earlier runs and other processes" | between(1, 1e9), 20),
      (std::optional<double>, timeout, "seconds after which no further trial begins" | above(0)),
      (std::optional<double>, trial_timeout,
       "seconds after which the process of a trial is ended and the trial failed, also if it hangs; implies "
       "trial_processes" |
           above(0)),
      (std::vector<StudyDirection>, direction,
       "minimize or maximize, one for each objective; unset follows metric_for_best_model, and is minimize "
       "for the loss"),
      (SearchSampler, sampler, "chooses the hyperparameters", SearchSampler::tpe),
      (SearchPruner, pruner, "ends trials that aren't worth going on", SearchPruner::none),
      (std::int64_t, n_jobs,
       "trials at once, each in a process of its own with its share of the threads" | between(1, 1024), 1),
      (bool, trial_processes,
       "run each trial in a process of its own, which starts this program again: a crash or a lack of memory "
       "costs one trial",
       false),
      (std::int64_t, max_restarts,
       "how often a trial whose process ended is continued without a new checkpoint since" | at_least(0), 3),
      (bool, keep_best_only, "remove the checkpoints of all trials but the best", false),
      (std::string, study_name, "the study's name in the journal" | not_empty(), "etude"),
      (std::string, journal,
       "the study's file, of Optuna's JournalStorage, for all processes that take part; unset is study.log "
       "in output_dir",
       ""),
      (SearchDriver, driver,
       "stdio: another program, such as Optuna's in Python, chooses the hyperparameters: requests go to "
       "standard output and answers come from standard input, as lines of JSON",
       SearchDriver::none));

  /// By default the fields of the given structs that are `searched`, or else Hugging Face's space: a learning
  /// rate from 1e-6 to 1e-4, 1 to 5 epochs, a seed from 1 to 40, and batches of 4, 8, 16, 32 or 64.
  SearchSpace hp_space = {};
  /// By default the metric named by `metric_for_best_model`; if that isn't set, as in Hugging Face's Trainer,
  /// the sum of all metrics but loss, epoch and speed, or the loss if there is no other.
  ComputeObjective compute_objective = {};
  /// Returns a trial's name, which is also its folder's name in `output_dir`; by default "run-NUMBER".
  FunctionOption<std::string(const Trial& trial)> hp_name = {};
  /// If set, these replace the sampler and the pruner that `sampler` and `pruner` name.
  std::shared_ptr<const Sampler> custom_sampler = {};
  std::shared_ptr<const Pruner> custom_pruner = {};
  /// Hyperparameters to try first, unless the study already has trials; unnamed hyperparameters are sampled.
  std::vector<std::map<std::string, nlohmann::ordered_json>> enqueued_trials = {};
};

/// The best trial of a search, like Hugging Face's class of the same name.
struct BestRun {
  std::string run_id = {};             ///< the trial's number
  std::vector<double> objective = {};  ///< one value for each direction
  std::map<std::string, nlohmann::ordered_json> hyperparameters = {};
  std::filesystem::path run_dir = {};  ///< the folder that it was trained in
  std::filesystem::path config = {};   ///< its hyperparameters, as a file for `--config`
  /// Its best checkpoint with `load_best_model_at_end`, or its last; empty if it has none.
  std::filesystem::path checkpoint = {};
};

struct SearchResult {
  std::vector<FrozenTrial> trials = {};
  std::vector<StudyDirection> directions = {};
  /// The best trial, or with several directions all trials that no other beats in all of them; empty without
  /// a complete trial.
  std::vector<BestRun> best_runs = {};
  std::filesystem::path report = {};  ///< a page about all trials, in `output_dir`

  /// Throws Error if no trial is complete, or if there are several directions.
  const BestRun& best_run() const;
  /// The trials as a table for a terminal.
  std::string table() const;
};

namespace detail {

/// The part of a trial that doesn't depend on the trainer's type.
class SearchTrial {
 public:
  virtual ~SearchTrial() = default;
  virtual Trial& trial() = 0;
  /// Chooses the hyperparameters and sets the fields. Seeds the generators.
  virtual void choose(const std::vector<SearchField>& fields, TrainingArguments& args) = 0;
  /// Checks that the trainer uses the given arguments and makes a new model for each training.
  virtual TrainOptions begin(const AnyTrainer& trainer, const TrainingArguments& its_args) = 0;
  /// True if the model that the training ended with hasn't been evaluated.
  virtual bool needs_evaluation(const TrainerState& state) const = 0;
  virtual void add(const Metrics& metrics, const TrainerState& state) = 0;
  virtual void finish(const TrainerState& state) = 0;
};

using RunTrial = std::function<void(SearchTrial&)>;

/// `fields` are the structs' fields, with the values that they had before any trial.
SearchResult search(const HyperparameterSearchOptions& options, const TrainingArguments& args,
                    const std::vector<SearchField>& fields, const RunTrial& run);

}  // namespace detail

/// Trains repeatedly with different hyperparameters to find the best ones, as Hugging Face's method of the
/// same name does, with Optuna's samplers and pruners. Each trial is a new trainer, which `make` builds from
/// the trial's arguments and from any further structs that you pass, whose fields can be searched too:
///
///     const auto result = etude::hyperparameter_search(
///         [&](const etude::TrainingArguments& args, const ModelArguments& model) {
///           return etude::Trainer<>({.model_init = [=] { return Net(model.width); }, .args = args, ...});
///         },
///         {.n_trials = 50, .direction = {etude::StudyDirection::maximize}}, args, model_args);
///     fmt::print("{}", result.best_run().config.string());
///
/// `make` may take a last parameter `etude::Trial&`, to ask it for further hyperparameters. The trainer needs
/// `model_init`, so that each trial begins with a new model. Each trial has a folder in `output_dir`, and the
/// study is a file there in the format of Optuna's JournalStorage. The same call resumes a search that was
/// killed, and its trials from their checkpoints; several processes can work on a search at once. A trial
/// that throws an exception, or whose objective is NaN, fails, and the search continues.
///
/// An error that every trial would hit ends the search without failing the trial, so that the next call
/// resumes it. Throws DiskFullError if the disk is full, and ArgumentError for invalid options, for a
/// hyperparameter that no struct has or whose values the struct doesn't allow, for a trainer without
/// `model_init` or with arguments other than the trial's, and for several processes in one training. Throws
/// Interrupted as `train()` does.
template <class Make, ReflectedStruct... More>
SearchResult hyperparameter_search(Make make, const HyperparameterSearchOptions& options,
                                   const TrainingArguments& args, const More&... more) {
  constexpr bool takes_trial = std::invocable<Make&, const TrainingArguments&, const More&..., Trial&>;
  static_assert(takes_trial || std::invocable<Make&, const TrainingArguments&, const More&...>,
                "etude: hyperparameter_search calls the function with const TrainingArguments& and each "
                "further struct, and perhaps etude::Trial&; it returns a trainer");
  const auto fields_of = [](auto& structs) {
    return std::apply([](auto&... each) { return detail::search_fields(each...); }, structs);
  };
  std::tuple<TrainingArguments, More...> defaults(args, more...);
  return detail::search(options, args, fields_of(defaults), [&](detail::SearchTrial& trial) {
    std::tuple<TrainingArguments, More...> values(args, more...);
    trial.choose(fields_of(values), std::get<0>(values));
    std::vector<std::string> faults;
    std::apply([&](const auto&, const auto&... each) { (detail::collect_all_faults(each, faults), ...); },
               values);
    detail::throw_faults(std::move(faults));
    auto trainer = std::apply(
        [&](const auto&... each) {
          if constexpr (takes_trial)
            return make(each..., trial.trial());
          else
            return make(each...);
        },
        values);
    trainer.train(trial.begin(trainer.context().trainer, trainer.args()));
    if (trial.needs_evaluation(trainer.state())) trial.add(trainer.evaluate(), trainer.state());
    trial.finish(trainer.state());
  });
}

}  // namespace etude::inline v0
