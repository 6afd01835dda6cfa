#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/base/progress_bar.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/child_program.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/launch.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"
#include "etude/study/study.hpp"
#include "etude/tune/hyperparameter_search.hpp"
#include "search_objective.hpp"
#include "search_space.hpp"

namespace etude::inline v0::detail {

/// Runs a search: gets trials from the study or another program, and trains and records each.
class Search {
 public:
  Search(const HyperparameterSearchOptions& options, const TrainingArguments& args,
         const std::vector<SearchField>& fields, const RunTrial& run)
      : options_(options), args_(normalized(args)), objective_(options, args), run_(run) {
    // Absolute, as in the trainer, so that a program that changes its working directory still finds its
    // trials.
    args_.output_dir = std::filesystem::absolute(args_.output_dir).lexically_normal().string();
    check_fields(options);
    if (find_launch().world_size > 1)
      throw ArgumentError(
          fmt::format("world_size is {}: must be 1, since each trial of hyperparameter_search trains in one "
                      "process; start the program several times to work on one journal",
                      find_launch().world_size));
    check_names(fields);
    if (options.custom_pruner || options.pruner != SearchPruner::none) {
      if (objective_.directions().size() > 1)
        throw ArgumentError("pruner is set: must be none with several directions");
      if (args_.eval_strategy == IntervalStrategy::no)
        throw ArgumentError(
            "eval_strategy is no: must be steps or epoch with a pruner, which judges evaluations");
    }
    default_file_system().create_directories(args_.output_dir);
    if (options.driver != SearchDriver::none) {
      check_driven();
      return;
    }
    const auto sampler = make_sampler(options, fields, static_cast<std::uint64_t>(args_.seed));
    n_trials_ = std::min(options.n_trials, sampler->most_trials().value_or(options.n_trials));
    study_.emplace(Study::Options{.study_name = options.study_name,
                                  .directions = objective_.directions(),
                                  .journal = options.journal.empty()
                                                 ? std::filesystem::path(args_.output_dir) / "study.log"
                                                 : std::filesystem::absolute(options.journal),
                                  .sampler = sampler,
                                  .pruner = make_pruner(options),
                                  .seed = static_cast<std::uint64_t>(args_.seed)});
    study_->set_folder(args_.output_dir);
  }

  SearchResult run();

  /// True if another trial has this folder.
  bool is_taken(const std::string& run_dir, std::int64_t number) {
    return study_ && std::ranges::any_of(study_->trials(), [&](const auto& other) {
             return other.number != number && text_attr(other, run_dir_attr) == run_dir;
           });
  }

  const HyperparameterSearchOptions& options() const { return options_; }
  const TrainingArguments& args() const { return args_; }
  const Objective& objective() const { return objective_; }

  void message_of(LogLevel level, const std::string& text) const { etude::message(args_, level, "{}", text); }

 private:
  struct Child {
    StudyTrial trial;
    ChildProgram program;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    // The time when the child was asked to end because it exceeded trial_timeout.
    std::optional<std::chrono::steady_clock::time_point> is_late_since = {};
  };

  static void check_names(const std::vector<SearchField>& fields);
  void check_driven() const;
  void run_given_trial(const std::string& given);
  void run_driven();
  void run_here(StudyTrial& trial);
  Child start(StudyTrial trial);
  void limit(Child& child) const;
  void end(const Child& child, const ChildProgram::Exit& exit);
  void give_up(StudyTrial& trial, const std::string& why);
  bool may_go_on(StudyTrial& trial);
  void fail(StudyTrial& trial, const std::string& why);
  void announce(const FrozenTrial& trial);
  void show_progress();
  void remove_others();
  void write_page(const std::vector<FrozenTrial>& trials);
  std::optional<std::filesystem::path> folder_of(const FrozenTrial& trial) const;
  std::string page_of(const FrozenTrial& trial) const;
  bool was_told_by_another(const StudyTrial& trial);
  void warn_without_lock(const StudyTrial& trial);
  SearchResult result();

  HyperparameterSearchOptions options_;
  TrainingArguments args_;
  Objective objective_;
  const RunTrial& run_;
  std::int64_t n_trials_ = 0, ordinal_ = 0;
  bool warned_ = false;
  std::chrono::steady_clock::time_point page_time_ = {};
  std::optional<Study> study_;
  std::vector<FrozenTrial> driven_;
  std::unique_ptr<ProgressBar> bar_;  // on a terminal; elsewhere a line for each trial is enough
};

/// A trial of this library's study, or of another program's.
class SearchTrialOf final : public SearchTrial {
 public:
  SearchTrialOf(Search& search, Trial& trial, StudyTrial* ours)
      : search_(search), trial_(trial), ours_(ours) {}

  Trial& trial() override { return trial_; }

  void choose(const std::vector<SearchField>& fields, TrainingArguments& args) override try {
    SpaceTrial space(trial_, fields);
    if (search_.options().hp_space)
      search_.options().hp_space.suggest(space);
    else if (any_is_searched(fields))
      suggest_fields(space, fields);
    else
      suggest_default(space);
    config_ = space.chosen();
    name_ = text_attr(trial_.frozen(), run_dir_attr);  // set if the trial is resumed
    if (!is_entry_name(name_)) {
      const auto& hp_name = search_.options().hp_name;
      name_ = hp_name ? hp_name.function()(trial_) : fmt::format("run-{}", trial_.number());
      if (!is_entry_name(name_))
        throw ArgumentError(
            fmt::format("hp_name gives '{}': must be a name for a folder in output_dir", name_));
      if (hp_name && search_.is_taken(name_, trial_.number()))
        throw ArgumentError(
            fmt::format("hp_name gives '{}', which another trial has: must be unique", name_));
    }
    args.output_dir = std::filesystem::path(search_.args().output_dir) / name_;
    run_dir_ = args.output_dir;
    // Seeded, so that a trial gives the same result in a separate process and after other trials.
    set_seed(static_cast<std::uint64_t>(args.seed));
  } catch (const ArgumentError& error) {
    throw SearchFault(error.what());
  }

  TrainOptions begin(const AnyTrainer& trainer, const TrainingArguments& its_args) override {
    if (!trainer.options().model_init)
      throw SearchFault(
          "model_init is not set: hyperparameter_search needs it to make the model anew for each trial");
    if (its_args.output_dir != run_dir_)
      throw SearchFault(
          fmt::format("output_dir of the trainer is {}, not {}: it must be made from the arguments that are "
                      "given to the function",
                      its_args.output_dir, run_dir_.string()));
    nlohmann::json params = nlohmann::json::object();
    for (const auto& [name, value] : trial_.params()) params[name] = nlohmann::json::parse(value.dump());
    const auto newest = get_last_checkpoint(run_dir_);
    if (newest && !is_of_this_trial(*newest, params))
      throw SearchFault(fmt::format(
          "{} has checkpoints of an earlier search: output_dir must be another folder, or that one removed",
          run_dir_.string()));
    warn_of_unused(params);
    default_file_system().create_directories(run_dir_);
    write_file(default_file_system(), run_dir_ / "hyperparameters.json", config_.dump(2) + "\n");
    trial_.set_user_attr(run_dir_attr, name_);
    if (ours_ != nullptr) ours_->record();
    loads_best_ = its_args.load_best_model_at_end;
    by_epoch_ = its_args.eval_strategy == IntervalStrategy::epoch;
    TrainOptions options;
    if (newest) options.resume_from_checkpoint = if_any;
    options.trial = {.name = name_,
                     .params = std::move(params),
                     .prune = [this](const Metrics& metrics, const TrainerState& state) {
                       record(state.global_step, metrics);
                       return prunes(state);
                     }};
    return options;
  }

  bool needs_evaluation(const TrainerState& state) const override {
    return !is_pruned_ && !values_.contains(step_of(state));
  }

  void add(const Metrics& metrics, const TrainerState& state) override { record(step_of(state), metrics); }

  void finish(const TrainerState& state) override {
    trial_.set_user_attr(steps_attr, state.global_step);
    if (const auto checkpoint = find_checkpoint(state))
      trial_.set_user_attr(checkpoint_attr, checkpoint->filename().string());
    const auto step = is_pruned_ ? state.global_step : step_of(state);
    if (const auto found = metrics_.find(step); found != metrics_.end())
      trial_.set_user_attr(metrics_attr, to_json_value(found->second));
    if (!is_pruned_) final_ = values_.at(step);
  }

  bool is_pruned() const { return is_pruned_; }
  const std::vector<double>& values() const { return final_; }

 private:
  /// The step of the model that the training ends with.
  std::int64_t step_of(const TrainerState& state) const {
    return loads_best_ && state.best_global_step ? *state.best_global_step : state.global_step;
  }

  /// True if the study records that the trial was trained there, or, after a journal lost its end, if the
  /// checkpoint has the trial's hyperparameters.
  bool is_of_this_trial(const std::filesystem::path& checkpoint, const nlohmann::json& params) const {
    if (ours_ == nullptr) return false;
    if (!text_attr(trial_.frozen(), run_dir_attr).empty()) return true;
    std::ifstream file(checkpoint / "trainer_state.json");
    const auto state = nlohmann::json::parse(file, nullptr, false);
    return state.is_object() && state.contains("trial_params") && state["trial_params"] == params;
  }

  void record(std::int64_t step, const Metrics& metrics) {
    values_[step] = search_.objective().of(metrics);
    metrics_[step] = metrics;
  }

  void warn_of_unused(const nlohmann::json& params) const {
    const auto frozen = trial_.frozen();
    const auto fixed = frozen.system_attrs.find("fixed_params");
    if (fixed == frozen.system_attrs.end() || !fixed->is_object()) return;
    for (const auto& [name, value] : fixed->items())
      if (!params.contains(name))
        search_.message_of(LogLevel::warning,
                           fmt::format("trial {} was enqueued with {}, which the space doesn't have",
                                       trial_.number(), name));
  }

  bool prunes(const TrainerState& state) {
    const auto& values = values_.at(state.global_step);
    if (values.size() > 1) return false;
    // Epochs are comparable between trials whose batch sizes differ.
    trial_.report(values[0], by_epoch_ ? std::llround(state.epoch) : state.global_step);
    is_pruned_ = is_pruned_ || trial_.should_prune();
    if (is_pruned_) trial_.set_user_attr(steps_attr, state.global_step);
    return is_pruned_;
  }

  std::optional<std::filesystem::path> find_checkpoint(const TrainerState& state) const {
    if (state.best_model_checkpoint && loads_best_) {
      std::filesystem::path best(*state.best_model_checkpoint);
      if (std::error_code none; std::filesystem::exists(best, none)) return best;
    }
    return get_last_checkpoint(run_dir_);
  }

  Search& search_;
  Trial& trial_;
  StudyTrial* ours_;
  std::string name_;
  std::filesystem::path run_dir_;
  nlohmann::ordered_json config_;
  bool loads_best_ = false, by_epoch_ = false, is_pruned_ = false;
  std::map<std::int64_t, std::vector<double>> values_;
  std::map<std::int64_t, Metrics> metrics_;
  std::vector<double> final_;
};

}  // namespace etude::inline v0::detail
