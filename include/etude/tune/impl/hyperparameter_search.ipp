#pragma once

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"
#include "etude/base/sigpipe.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/child_program.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/launch.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/study/remote_study.hpp"
#include "etude/study/report.hpp"
#include "etude/study/study.hpp"
#include "etude/tune/hyperparameter_search.hpp"

namespace etude::inline v0 {
namespace detail {

/// A mistake in the search itself, which every trial would repeat.
struct SearchFault : ArgumentError {
  explicit SearchFault(const std::string& text) : ArgumentError(text) {}
};

/// Names the trial for the process that runs it, as JSON.
inline constexpr const char* trial_variable = "ETUDE_TRIAL";
/// The exit status of such a process after a SearchFault.
inline constexpr int fault_status = 65;

/// The exit status of such a process after a signal that it has handled.
inline constexpr int interrupted_status = 66;

/// The names of what a search adds to its trials.
inline constexpr const char *run_dir_attr = "run_dir", *checkpoint_attr = "checkpoint",
                            *steps_attr = "global_step", *metrics_attr = "metrics", *error_attr = "error",
                            *restarts_attr = "etude:restarts";

/// A journal isn't believed: attributes of another type don't count.
inline std::string text_attr(const FrozenTrial& trial, const char* name) {
  const auto found = trial.user_attrs.find(name);
  return found != trial.user_attrs.end() && found->is_string() ? found->get<std::string>() : "";
}
inline std::int64_t number_attr(const nlohmann::ordered_json& attrs, const char* name) {
  const auto found = attrs.is_object() ? attrs.find(name) : attrs.end();
  constexpr std::int64_t most = std::int64_t{1} << 53;
  return found != attrs.end() && found->is_number_integer()
             ? std::clamp<std::int64_t>(found->get<std::int64_t>(), 0, most)
             : 0;
}

/// Whether it names something in a folder, and nothing outside.
inline bool is_entry_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos;
}

/// The metrics that Hugging Face's default objective adds up.
inline Metrics summed_metrics(const Metrics& metrics) {
  Metrics summed;
  for (const auto& [name, value] : metrics) {
    const std::string_view suffix(name);
    if (name == "eval_loss" || name == "epoch" || suffix.ends_with("_runtime") ||
        suffix.ends_with("_per_second") || suffix.ends_with("_compilation_time") ||
        suffix.ends_with("_preparation_time"))
      continue;
    summed[name] = value;
  }
  return summed;
}

/// The objective and the directions of a search.
class Objective {
 public:
  Objective(const HyperparameterSearchOptions& options, const TrainingArguments& args)
      : compute_(options.compute_objective), args_(normalized(args)), directions_(options.direction) {
    for (const auto each : directions_)
      if (each == StudyDirection::not_set)
        throw ArgumentError("direction has not_set: must be minimize or maximize");
    by_metric_ = args.metric_for_best_model.has_value();
    if (!directions_.empty()) return;
    is_unset_ = true;
    if (compute_)
      throw ArgumentError("direction is unset: must be minimize or maximize with compute_objective");
    const bool is_greater = args.metric_for_best_model && args_.greater_is_better.value_or(false);
    directions_ = {is_greater ? StudyDirection::maximize : StudyDirection::minimize};
  }

  const std::vector<StudyDirection>& directions() const { return directions_; }

  /// Throws SearchFault for another number of values than directions, and for a sum of metrics whose
  /// direction nobody has said.
  std::vector<double> of(const Metrics& metrics) const {
    auto values = compute(metrics);
    if (values.size() != directions_.size())
      throw SearchFault(fmt::format("direction has {} values: must have {}, one for each objective",
                                    directions_.size(), values.size()));
    return values;
  }

 private:
  std::vector<double> compute(const Metrics& metrics) const {
    if (compute_) return compute_(metrics);
    if (by_metric_) return {best_metric(args_, metrics)};
    const auto summed = summed_metrics(metrics);
    if (summed.empty()) {
      if (!metrics.contains("eval_loss"))
        throw SearchFault("there is no eval_loss to minimize: compute_objective must be set");
      return {metrics.at("eval_loss")};
    }
    double sum = 0;
    std::vector<std::string> names;
    for (const auto& [name, value] : summed) {
      sum += value;
      names.push_back(name);
    }
    if (is_unset_)
      throw SearchFault(fmt::format(
          "direction is unset: must be minimize or maximize, since the objective is the sum of {}",
          fmt::join(names, ", ")));
    return {sum};
  }

  ComputeObjective compute_;
  TrainingArguments args_;
  std::vector<StudyDirection> directions_;
  bool is_unset_ = false, by_metric_ = false;
};

/// Notes the hyperparameters that a space asks for, and checks them before anything is trained.
class SpaceTrial final : public Trial {
 public:
  SpaceTrial(Trial& trial, const std::vector<SearchField>& fields) : trial_(trial), fields_(fields) {}

  std::int64_t number() const override { return trial_.number(); }
  nlohmann::ordered_json suggest(const std::string& name, const Distribution& distribution) override {
    const auto& field = find_field(fields_, name);
    check_range(field, distribution);
    auto value = trial_.suggest(name, distribution);
    field.set(value);
    chosen_[name] = value;
    return value;
  }
  /// The values that are fields of a struct.
  const nlohmann::ordered_json& chosen() const { return chosen_; }
  void report(double value, std::int64_t step) override { trial_.report(value, step); }
  bool should_prune() override { return trial_.should_prune(); }
  void set_user_attr(const std::string& name, const nlohmann::ordered_json& value) override {
    trial_.set_user_attr(name, value);
  }
  FrozenTrial frozen() const override { return trial_.frozen(); }

 private:
  Trial& trial_;
  const std::vector<SearchField>& fields_;
  nlohmann::ordered_json chosen_ = nlohmann::ordered_json::object();
};

inline bool any_is_searched(const std::vector<SearchField>& fields) {
  return std::ranges::any_of(fields, [](const auto& field) { return field.doc.searched.is_searched; });
}

/// Hugging Face's default space.
inline void suggest_default(Trial& trial) {
  trial.suggest_float("learning_rate", {.low = 1e-6, .high = 1e-4, .log = true});
  trial.suggest_int("num_train_epochs", {.low = 1, .high = 5});
  trial.suggest_int("seed", {.low = 1, .high = 40});
  trial.suggest_categorical<std::int64_t>("per_device_train_batch_size", {4, 8, 16, 32, 64});
}

/// All values of a distribution. Throws ArgumentError if there are too many.
inline std::vector<nlohmann::ordered_json> grid_values(const std::string& name,
                                                       const Distribution& distribution) {
  if (const auto* choices = std::get_if<Choices>(&distribution)) return choices->choices;
  check_distribution(name, distribution);
  constexpr double most = 1e6;
  double low = 0, step = 0, steps = -1;
  if (const auto* whole = std::get_if<IntRange>(&distribution)) {
    low = static_cast<double>(whole->low), step = static_cast<double>(whole->step);
    steps = static_cast<double>((whole->high - whole->low) / whole->step);
  } else if (const auto& range = std::get<FloatRange>(distribution); range.step) {
    low = range.low, step = *range.step, steps = steps_of(range);
  }
  if (steps < 0 || steps >= most)
    throw ArgumentError(fmt::format("sampler is grid: {} must have choices or a step", name));
  std::vector<nlohmann::ordered_json> values;
  for (double i = 0; i <= steps; ++i) values.push_back(from_number(distribution, low + i * step));
  return values;
}

inline std::shared_ptr<const Sampler> make_sampler(const HyperparameterSearchOptions& options,
                                                   const std::vector<SearchField>& fields,
                                                   std::uint64_t seed) {
  if (options.custom_sampler) return options.custom_sampler;
  if (options.sampler == SearchSampler::random) return std::make_shared<RandomSampler>();
  if (options.sampler == SearchSampler::qmc) return std::make_shared<QMCSampler>(seed);
  if (options.sampler == SearchSampler::tpe) return std::make_shared<TPESampler>();
  std::vector<GridSampler::Values> grid;
  for (const auto& [name, distribution] : options.hp_space.entries())
    grid.push_back({name, grid_values(name, distribution)});
  if (!options.hp_space)
    for (const auto& field : fields)
      if (field.doc.searched.is_searched && field.doc.searched.condition.empty()) {
        const std::string name(field.field.name);
        grid.push_back({name, grid_values(name, searched_values(field))});
      }
  if (grid.empty())
    throw ArgumentError("sampler is grid: hp_space must be a list, or fields must be searched");
  return std::make_shared<GridSampler>(std::move(grid));
}

inline std::shared_ptr<const Pruner> make_pruner(const HyperparameterSearchOptions& options) {
  if (options.custom_pruner) return options.custom_pruner;
  if (options.pruner == SearchPruner::median) return std::make_shared<MedianPruner>();
  if (options.pruner == SearchPruner::percentile)
    return std::make_shared<PercentilePruner>(PercentilePruner::Options{.percentile = 100.0 / 3});
  if (options.pruner == SearchPruner::halving) return std::make_shared<SuccessiveHalvingPruner>();
  return nullptr;
}

/// A search: where its trials come from, and what is done with each.
class Search {
 public:
  Search(const HyperparameterSearchOptions& options, const TrainingArguments& args,
         const std::vector<SearchField>& fields, const RunTrial& run)
      : options_(options), args_(normalized(args)), objective_(options, args), run_(run) {
    // As the trainer does, so that a program that changes its folder finds its trials.
    args_.output_dir = std::filesystem::absolute(args_.output_dir).lexically_normal().string();
    check_fields(options);
    if (find_launch().world_size > 1)
      throw ArgumentError(
          fmt::format("world_size is {}: must be 1, since each trial of hyperparameter_search trains in one "
                      "process; start the program several times to work on one journal",
                      find_launch().world_size));
    check_names(fields);
    if ((options.custom_pruner || options.pruner != SearchPruner::none)) {
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
                                                 : std::filesystem::path(options.journal),
                                  .sampler = sampler,
                                  .pruner = make_pruner(options),
                                  .seed = static_cast<std::uint64_t>(args_.seed)});
    study_->set_folder(args_.output_dir);
  }

  SearchResult run();

  /// Whether another trial has this folder.
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
  };

  static void check_names(const std::vector<SearchField>& fields);
  void check_driven() const;
  void run_given_trial(const std::string& given);
  void run_driven();
  void run_here(StudyTrial& trial);
  Child start(StudyTrial trial);
  void end(const Child& child, const ChildProgram::Exit& exit);
  bool may_go_on(StudyTrial& trial);
  void fail(StudyTrial& trial, const std::string& why);
  void end_failed(StudyTrial& trial, const std::string& why);
  void announce(const FrozenTrial& trial);
  void remove_others();
  void write_page(const std::vector<FrozenTrial>& trials);
  std::optional<std::filesystem::path> folder_of(const FrozenTrial& trial) const;
  bool was_told_by_another(const StudyTrial& trial);
  void warn_without_lock(const StudyTrial& trial);
  SearchResult result();

  HyperparameterSearchOptions options_;
  TrainingArguments args_;
  Objective objective_;
  const RunTrial& run_;
  std::int64_t n_trials_ = 0, ordinal_ = 0;
  bool warned_ = false;
  std::optional<Study> study_;
  std::vector<FrozenTrial> driven_;
};

/// A trial of a study of ours, or of another program's.
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
    name_ = text_attr(trial_.frozen(), run_dir_attr);  // of a trial that is resumed
    if (!is_entry_name(name_)) {
      const auto& hp_name = search_.options().hp_name;
      name_ = hp_name ? hp_name.function()(trial_) : fmt::format("run-{}", trial_.number());
      if (!is_entry_name(name_))
        throw ArgumentError(
            fmt::format("hp_name gives '{}': must be a name for a folder in output_dir", name_));
      if (search_.is_taken(name_, trial_.number()))
        throw ArgumentError(
            fmt::format("hp_name gives '{}', which another trial has: must be unique", name_));
    }
    args.output_dir = std::filesystem::path(search_.args().output_dir) / name_;
    run_dir_ = args.output_dir;
    // So that a trial is the same in a process of its own, and after others.
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
    const bool is_continued = ours_ != nullptr && ours_->is_continued();
    if (!is_continued && get_last_checkpoint(run_dir_))
      throw SearchFault(fmt::format(
          "{} has checkpoints of an earlier search: output_dir must be another folder, or that one removed",
          run_dir_.string()));
    nlohmann::json params = nlohmann::json::object();
    for (const auto& [name, value] : trial_.params()) params[name] = nlohmann::json::parse(value.dump());
    warn_of_unused(params);
    default_file_system().create_directories(run_dir_);
    write_file(default_file_system(), run_dir_ / "hyperparameters.json", config_.dump(2) + "\n");
    trial_.set_user_attr(run_dir_attr, name_);
    loads_best_ = its_args.load_best_model_at_end;
    by_epoch_ = its_args.eval_strategy == IntervalStrategy::epoch;
    TrainOptions options;
    if (is_continued) options.resume_from_checkpoint = if_any;
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
  /// The step of the model that the training leaves.
  std::int64_t step_of(const TrainerState& state) const {
    return loads_best_ && state.best_global_step ? *state.best_global_step : state.global_step;
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
    // Epochs can be compared between trials with batches of different sizes.
    trial_.report(values[0], by_epoch_ ? std::llround(state.epoch) : state.global_step);
    is_pruned_ = is_pruned_ || trial_.should_prune();
    if (is_pruned_) trial_.set_user_attr(steps_attr, state.global_step);
    return is_pruned_;
  }

  std::optional<std::filesystem::path> find_checkpoint(const TrainerState& state) const {
    if (state.best_model_checkpoint && loads_best_) {
      const std::filesystem::path best(*state.best_model_checkpoint);
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

/// The searches that this process has begun.
inline std::int64_t& searches_begun() {
  static std::int64_t count = 0;
  return count;
}

ETUDE_INLINE SearchResult Search::run() {
  ordinal_ = ++searches_begun();
  if (options_.driver != SearchDriver::none) {
    run_driven();
    return result();
  }
  if (const char* given = std::getenv(trial_variable)) {
    run_given_trial(given);
    return result();  // of an earlier search of the same program
  }
  study_->enqueue_first(options_.enqueued_trials);
  const auto begin = std::chrono::steady_clock::now();
  const auto is_late = [&] {
    return options_.timeout &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >
               *options_.timeout;
  };
  const bool in_processes = options_.trial_processes || options_.n_jobs > 1;
  // The children write their checkpoints first.
  SignalGuard signals(in_processes);
  std::list<Child> children;
  for (;;) {
    const bool is_ending = in_processes && SignalGuard::came() != 0;
    if (is_ending)
      for (auto& child : children) child.program.ask_to_end();
    const auto jobs = static_cast<std::size_t>(options_.n_jobs);
    while (!is_ending && children.size() < jobs && !is_late()) {
      auto trial = study_->claim(n_trials_);
      if (!trial) break;
      warn_without_lock(*trial);
      if (!may_go_on(*trial)) continue;
      if (in_processes)
        children.push_back(start(std::move(*trial)));
      else
        run_here(*trial);
    }
    if (children.empty() && (is_ending || is_late() || !study_->others_run())) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(children.empty() ? 200 : 10));
    for (auto child = children.begin(); child != children.end();) {
      const auto exit = child->program.poll();
      if (exit) end(*child, *exit);
      child = exit ? children.erase(child) : std::next(child);
    }
  }
  if (const int signal = in_processes ? SignalGuard::came() : 0) {
    signals.restore();
    throw Interrupted(signal);
  }
  return result();
}

/// In the process of one trial, which ends here.
ETUDE_INLINE void Search::run_given_trial(const std::string& given) {
  const auto json = parse_json(given);
  if (ordinal_ < json.at("search").get<std::int64_t>()) return;
  ::unsetenv(trial_variable);
  int status = 0;
  try {
    const auto folder = json.at("output_dir").get<std::string>();
    if (folder != args_.output_dir)
      throw SearchFault(fmt::format(
          "output_dir is {} in the process of a trial: must be {}, as in the program that started it",
          args_.output_dir, folder));
    if (const auto lock = json.at("lock").get<int>(); lock >= 0) ::fcntl(lock, F_SETFD, FD_CLOEXEC);
    auto trial =
        study_->running_trial(json.at("number").get<std::int64_t>(), json.at("is_continued").get<bool>());
    const OrphanGuard orphans;
    run_here(trial);
  } catch (const SearchFault& fault) {
    message_of(LogLevel::error, fault.what());
    status = fault_status;
  } catch (const Interrupted&) {
    status = interrupted_status;
  }
  std::exit(status);
}

ETUDE_INLINE void Search::warn_without_lock(const StudyTrial& trial) {
  if (trial.lock_descriptor() < 0 && !std::exchange(warned_, true))
    message_of(LogLevel::warning,
               "the journal's file system has no locks: a trial whose process ends isn't resumed");
}

ETUDE_INLINE void Search::run_here(StudyTrial& trial) {
  SearchTrialOf job(*this, trial, &trial);
  try {
    run_(job);
    if (was_told_by_another(trial)) return;
    if (job.is_pruned())
      study_->tell(trial, TrialState::pruned);
    else
      study_->tell(trial, job.values());
    if (trial.frozen().state == TrialState::fail)
      message_of(LogLevel::warning,
                 fmt::format("trial {} failed: its objective isn't a number", trial.number()));
  } catch (const Interrupted&) {
    throw;  // the trial is running, for another call to resume it
  } catch (const SearchFault& fault) {
    end_failed(trial, fault.what());
    throw;
  } catch (const MetricError& error) {
    end_failed(trial, error.what());
    throw SearchFault(error.what());
  } catch (...) {
    fail(trial, etude::message_of(std::current_exception()));
  }
  announce(trial.frozen());
  remove_others();
}

/// Somebody may have ended the trial in a dashboard.
ETUDE_INLINE bool Search::was_told_by_another(const StudyTrial& trial) {
  study_->trials();
  if (!trial.frozen().is_finished()) return false;
  message_of(LogLevel::warning, fmt::format("trial {} was ended by another program", trial.number()));
  return true;
}

/// The page about all trials; a search goes on without it.
ETUDE_INLINE void Search::write_page(const std::vector<FrozenTrial>& trials) {
  try {
    write_report(std::filesystem::path(args_.output_dir) / "report.html", options_.study_name, trials,
                 objective_.directions());
  } catch (const CheckpointError& error) {
    message_of(LogLevel::warning, error.what());
  }
}

ETUDE_INLINE void Search::fail(StudyTrial& trial, const std::string& why) {
  message_of(LogLevel::warning, fmt::format("trial {} failed: {}", trial.number(), why));
  end_failed(trial, why);
}

ETUDE_INLINE void Search::end_failed(StudyTrial& trial, const std::string& why) {
  if (was_told_by_another(trial)) return;
  trial.set_user_attr(error_attr, why);
  study_->tell(trial, TrialState::fail);
}

/// Whether a trial that was begun elsewhere is worth another attempt.
ETUDE_INLINE bool Search::may_go_on(StudyTrial& trial) {
  if (!trial.is_continued()) return true;
  const auto frozen = trial.frozen();
  if (frozen.system_attrs.contains(pruned_attr)) {
    study_->tell(trial, TrialState::pruned);
    announce(trial.frozen());
    return false;
  }
  std::int64_t step = 0, count = 1;
  if (const auto folder = folder_of(frozen))
    if (const auto newest = get_last_checkpoint(*folder)) step = checkpoint_step(*newest).value_or(0);
  if (const auto before = frozen.system_attrs.find(restarts_attr); before != frozen.system_attrs.end())
    if (number_attr(*before, "step") == step) count = number_attr(*before, "count") + 1;
  if (count > options_.max_restarts) {
    fail(trial, fmt::format("its process ended {} times at step {}", count, step));
    return false;
  }
  trial.set_system_attr(restarts_attr, {{"step", step}, {"count", count}});
  return true;
}

ETUDE_INLINE Search::Child Search::start(StudyTrial trial) {
  const nlohmann::ordered_json job{{"search", ordinal_},
                                   {"output_dir", args_.output_dir},
                                   {"lock", trial.lock_descriptor()},
                                   {"number", trial.number()},
                                   {"is_continued", trial.is_continued()}};
  const auto threads = std::to_string(std::max<std::int64_t>(1, at::get_num_threads() / options_.n_jobs));
  const auto output = std::filesystem::path(args_.output_dir) / fmt::format("trial-{}.txt", trial.number());
  ChildProgram program({.environment = {{trial_variable, job.dump()},
                                        {"OMP_NUM_THREADS", threads},
                                        {"MKL_NUM_THREADS", threads}},
                        .output = output,
                        .kept_open = trial.lock_descriptor()});
  return {std::move(trial), std::move(program)};
}

/// After the end of a trial's process.
ETUDE_INLINE void Search::end(const Child& child, const ChildProgram::Exit& exit) {
  auto trial = child.trial;
  study_->trials();
  if (const auto frozen = trial.frozen(); frozen.is_finished()) {
    if (exit.code == fault_status) throw SearchFault(text_attr(frozen, error_attr));
    return announce(frozen);
  }
  // A trial that was asked to end has written a checkpoint, and is resumed.
  if (exit.signal == SIGTERM || exit.signal == SIGINT || exit.code == interrupted_status) return;
  if (exit.code == fault_status)
    throw SearchFault(fmt::format("the process of trial {} can't run it: its output is in {}/trial-{}.txt",
                                  trial.number(), args_.output_dir, trial.number()));
  fail(trial,
       fmt::format("{}; its output is in {}/trial-{}.txt", exit.text(), args_.output_dir, trial.number()));
}

/// Trials that another program hands out.
ETUDE_INLINE void Search::run_driven() {
  std::fflush(stdout);
  const Descriptor out(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
  // The program's own output must not mix with requests.
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const WithoutSigpipe without;
  RemoteStudy study(exchange_lines(STDIN_FILENO, out.get()));
  while (const auto trial = study.ask(objective_.directions())) {
    SearchTrialOf job(*this, *trial, nullptr);
    const auto tell = [&](TrialState state, std::vector<double> values) {
      if (state == TrialState::complete)
        study.tell(*trial, values);
      else
        study.tell(*trial, state);
      driven_.push_back(trial->frozen());
      driven_.back().state = state;
      driven_.back().values = std::move(values);
    };
    try {
      run_(job);
      const bool is_number =
          std::ranges::none_of(job.values(), [](double value) { return std::isnan(value); });
      if (job.is_pruned())
        tell(TrialState::pruned, {});
      else if (is_number)
        tell(TrialState::complete, job.values());
      else
        tell(TrialState::fail, {});
    } catch (const Interrupted&) {
      throw;
    } catch (const CommunicationError&) {
      throw;
    } catch (const SearchFault&) {
      tell(TrialState::fail, {});
      throw;
    } catch (...) {
      const auto why = etude::message_of(std::current_exception());
      message_of(LogLevel::warning, fmt::format("trial {} failed: {}", trial->number(), why));
      trial->set_user_attr(error_attr, why);
      tell(TrialState::fail, {});
    }
  }
}

/// Says how a trial ended, unless the program is to be quiet.
ETUDE_INLINE void Search::announce(const FrozenTrial& trial) {
  write_page(study_->trials());
  if (!args_.shows(LogLevel::warning)) return;
  const auto text = [](const std::vector<double>& values) {
    return fmt::format("{:.6g}", fmt::join(values, ", "));
  };
  std::string line = fmt::format("trial {}: ", trial.number);
  if (trial.state == TrialState::complete)
    line += text(trial.values);
  else
    line += to_string(trial.state);
  if (trial.state == TrialState::pruned)
    line += fmt::format(" at step {}", number_attr(trial.user_attrs, steps_attr));
  const auto best = study_->best_trials();
  if (objective_.directions().size() == 1 && !best.empty())
    line += fmt::format("; best {} (trial {})", text(best[0].values), best[0].number);
  etude::print("{}\n", line);
}

ETUDE_INLINE void Search::remove_others() {
  if (!options_.keep_best_only) return;
  const auto trials = study_->trials();
  const auto best = best_trials(trials, objective_.directions());
  for (const auto& trial : trials) {
    const bool is_best =
        std::ranges::any_of(best, [&](const auto& each) { return each.number == trial.number; });
    const auto folder = folder_of(trial);
    if (!trial.is_finished() || is_best || !folder) continue;
    try {
      for (const auto& checkpoint : checkpoint_folders(*folder)) default_file_system().remove_all(checkpoint);
    } catch (const CheckpointError& error) {
      message_of(LogLevel::warning, error.what());
    }
  }
}

/// The folder in `output_dir` that a trial has named.
ETUDE_INLINE std::optional<std::filesystem::path> Search::folder_of(const FrozenTrial& trial) const {
  const auto name = text_attr(trial, run_dir_attr);
  if (!is_entry_name(name)) return {};
  return std::filesystem::path(args_.output_dir) / name;
}

ETUDE_INLINE SearchResult Search::result() {
  SearchResult result{.trials = study_ ? study_->trials() : driven_, .directions = objective_.directions()};
  if (study_) remove_others();
  result.report = std::filesystem::path(args_.output_dir) / "report.html";
  write_page(result.trials);
  auto best = best_trials(result.trials, result.directions);
  if (result.directions.size() == 1 && best.size() > 1) best.resize(1);
  for (const auto& trial : best) {
    BestRun run{.run_id = std::to_string(trial.number), .objective = trial.values};
    for (const auto& [name, number] : trial.params) run.hyperparameters[name] = trial.param(name);
    if (const auto folder = folder_of(trial)) {
      run.run_dir = *folder;
      run.config = run.run_dir / "hyperparameters.json";
      if (const auto checkpoint = text_attr(trial, checkpoint_attr); checkpoint_step(checkpoint))
        run.checkpoint = run.run_dir / std::filesystem::path(checkpoint).filename();
    }
    result.best_runs.push_back(std::move(run));
  }
  return result;
}

/// Fields that a search couldn't tell apart.
ETUDE_INLINE void Search::check_names(const std::vector<SearchField>& fields) {
  std::set<std::string_view> names;
  for (const auto& field : fields)
    if (!names.insert(field.field.name).second)
      throw ArgumentError(fmt::format("{} is a field of several structs: must be one of {} alone",
                                      field.field.name, field.group));
}

/// Options that mean nothing where another program chooses.
ETUDE_INLINE void Search::check_driven() const {
  const HyperparameterSearchOptions defaults;
  std::vector<std::string_view> set;
  const auto check = [&](std::string_view name, bool is_default) {
    if (!is_default) set.push_back(name);
  };
  check("n_trials", options_.n_trials == defaults.n_trials);
  check("timeout", !options_.timeout);
  check("sampler", options_.sampler == defaults.sampler && !options_.custom_sampler);
  check("pruner", options_.pruner == defaults.pruner && !options_.custom_pruner);
  check("n_jobs", options_.n_jobs == 1);
  check("trial_processes", !options_.trial_processes);
  check("keep_best_only", !options_.keep_best_only);
  check("journal", options_.journal.empty());
  check("enqueued_trials", options_.enqueued_trials.empty());
  if (!set.empty())
    throw ArgumentError(fmt::format(
        "driver is stdio: {} must be left out, since the other program decides that", fmt::join(set, ", ")));
}

ETUDE_INLINE SearchResult search(const HyperparameterSearchOptions& options, const TrainingArguments& args,
                                 const std::vector<SearchField>& fields, const RunTrial& run) try {
  return Search(options, args, fields, run).run();
} catch (const SearchFault& fault) {
  throw ArgumentError(fault.what());
}

}  // namespace detail

ETUDE_INLINE std::string SearchResult::table() const { return format_trials(trials, directions); }

ETUDE_INLINE const BestRun& SearchResult::best_run() const {
  if (directions.size() > 1)
    throw Error(fmt::format("the search has {} directions: see best_runs", directions.size()));
  if (best_runs.empty()) throw Error(fmt::format("none of {} trials is complete", trials.size()));
  return best_runs[0];
}

}  // namespace etude::inline v0
