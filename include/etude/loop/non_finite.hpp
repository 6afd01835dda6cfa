#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/function_ref.hpp"
#include "etude/data/batch.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/snapshot.hpp"

namespace etude::inline v0 {

/// Keeps losses and gradients that aren't finite away from the weights, as `on_non_finite` requires, and
/// finds out where they came from.
class NonFiniteUpdates {
 public:
  /// The loss of a batch, as in a training step.
  using ComputeLoss = detail::FunctionRef<torch::Tensor(const Batch&)>;

  /// A training stops at the last of this many steps in a row with an update that was rejected. The count is
  /// part of the training's progress, so only a step whose updates are all made clears it.
  static constexpr int most_in_a_row = 50;
  /// The interval, in updates, between copies of the state that `restore` returns to, and the number of
  /// returns to the same copy before the training stops.
  static constexpr std::int64_t updates_per_copy = 100;
  static constexpr int most_restores = 3;
  /// The number of rejected updates in a training for which the origin is searched.
  static constexpr int most_diagnoses = 10;

  /// `events` must outlive this.
  explicit NonFiniteUpdates(EventSource& events);
  ~NonFiniteUpdates();

  bool is_on() const { return core_.args.on_non_finite != OnNonFinite::ignore; }

  void begin_step();
  /// Called after a step that made an update.
  void end_step() {
    if (!has_rejected_) core_.progress.rejected_in_a_row = 0;
  }
  /// Whether an update of the current step was rejected; the step's remaining updates are then skipped.
  bool has_rejected() const { return has_rejected_; }

  /// Remembers what forward passes change, so that the group can be run again.
  void begin_group();

  /// Whether the norm of the gradients and the group's losses are finite; with several processes, only the
  /// norm counts, which is the same in all of them.
  bool accepts(const torch::Tensor& grad_norm);

  /// Called for an update that wasn't accepted. Runs its micro-batches again to find the origin, unless
  /// `compute_loss` is empty, and reports it. Restores buffers and, for `restore`, an earlier state. Throws
  /// StopTraining if the training should stop.
  void reject(const std::vector<Batch>& group, std::optional<ComputeLoss> compute_loss);

 private:
  void copy_state();
  std::string diagnose(const std::vector<Batch>& group, ComputeLoss compute_loss);
  std::string restore();
  [[noreturn]] void stop(const std::string& reason);

  EventSource& events_;
  TrainerCore& core_;
  bool norm_is_finite_ = true;
  bool has_rejected_ = false;
  bool may_copy_ = true;  // before the first update of a step
  int diagnoses_ = 0;
  std::optional<Snapshot<part::Buffers, part::DefaultGenerators>> group_begin_;
  std::optional<TrainedState> good_;
  std::int64_t step_of_good_ = 0;
  std::int64_t updates_since_good_ = 0;
  int restores_ = 0;
};

}  // namespace etude::inline v0
