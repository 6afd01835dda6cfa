#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/checkpoint/training_progress.hpp"
#include "etude/loop/ranks.hpp"
#include "etude/loop/slow_rank.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/model/model.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Collects the results of update steps for the next log, and the mean loss of all steps that are logged.
class LogWindow {
 public:
  /// Both must outlive this. The losses of all processes are added up when they are taken.
  LogWindow(const TrainingArguments& args, const Ranks& ranks) : args_(args), ranks_(ranks) {}

  /// Starts over for another training.
  void begin_training();

  /// Begins to measure the training's speed; `tokens` is the number of tokens seen so far.
  void start_clock(std::int64_t tokens);
  std::chrono::steady_clock::time_point clock_start() const { return clock_start_; }

  /// Add the results of an update. Tensors aren't read before they are logged.
  void add_loss(const torch::Tensor& loss, std::int64_t step) { loss_.add(loss, 1, step); }
  /// `optimizer` is the name of one of several; the logs put it before the number's name.
  void set_grad_norm(torch::Tensor norm, const std::string& optimizer = "") {
    update_of(optimizer).grad_norm = std::move(norm);
  }
  torch::Tensor grad_norm() const { return updates_.empty() ? torch::Tensor() : updates_.front().grad_norm; }
  void set_learning_rate(double rate, const std::string& optimizer = "") {
    update_of(optimizer).learning_rate = rate;
  }
  /// The seconds that this process has waited for the others in an update.
  void add_wait(double seconds) { waited_ += seconds; }

  /// Whether there was an update since the last log.
  bool has_steps(std::int64_t global_step) const { return global_step > last_logged_step_; }

  /// Returns the logs of the steps since the last log, and starts the next window. All processes call it.
  /// Warns of a process that makes the others wait in several windows in a row.
  Metrics take_logs(const TrainerState& state);
  /// Returns the mean loss per update since the last log, and starts the next window.
  double take_loss(std::int64_t global_step) { return take_loss(global_step, sums()); }

  /// Adds the mean loss of the training if there was a step; warns of losses that weren't finite.
  void sum_up(Metrics& summary, const Model& model);

  /// Write and read the window's fields of `progress`.
  void save(TrainingProgress& progress);
  void load(const TrainingProgress& progress);

 private:
  /// The steps with a loss that wasn't finite in any process.
  struct NonFiniteSteps {
    std::int64_t count = 0;
    std::optional<std::int64_t> first = {};
  };

  /// The sum of the losses since the last log, the steps with losses that weren't finite, and the seconds
  /// that each process waited.
  struct Sums {
    double loss = 0;
    NonFiniteSteps non_finite = {};
    std::vector<double> waits = {};
  };

  /// The last update of an optimizer.
  struct LastUpdate {
    std::string optimizer;
    torch::Tensor grad_norm = {};
    double learning_rate = 0;
  };

  LastUpdate& update_of(const std::string& optimizer);
  Sums sums();
  /// The steps with such a loss since the last log; `are_any`: whether any process has one.
  NonFiniteSteps non_finite_steps(bool are_any);
  void warn_of_slow_rank(std::int64_t steps, const std::vector<double>& waits);
  double take_loss(std::int64_t global_step, const Sums& sums);

  const TrainingArguments& args_;
  const Ranks& ranks_;
  std::chrono::steady_clock::time_point clock_start_;
  std::int64_t tokens_at_start_ = 0;
  RunningMean loss_;
  NonFiniteSteps non_finite_before_;  // in the window of the checkpoint that is resumed
  std::vector<LastUpdate> updates_;
  std::int64_t last_logged_step_ = 0;
  RunningMean total_loss_{true};  // of the steps that are logged
  std::int64_t non_finite_losses_ = 0;
  std::optional<std::int64_t> first_non_finite_loss_;
  std::chrono::steady_clock::time_point window_start_;
  double waited_ = 0;
  SlowRank slow_rank_;
};

}  // namespace etude::inline v0
