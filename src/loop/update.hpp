#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "captured_step.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/non_finite.hpp"
#include "etude/parallel/gradient_reducer.hpp"
#include "micro_batches.hpp"
#include "optimizer_steps.hpp"

namespace etude::inline v0 {

/// One update of the weights: fetches an accumulation group of micro-batches, accumulates and clips its
/// gradients, and steps the optimizers and their schedules.
class Update {
 public:
  explicit Update(EventSource& events) : events_(events), core_(events.core()) {}
  Update(const Update&) = delete;
  Update& operator=(const Update&) = delete;
  ~Update() { core_.step_by_hand = nullptr; }

  /// Called once the optimizers exist: prepares them, and adds up their gradients if there are several
  /// processes.
  void join_gradients();

  /// Fetches the micro-batches of the next update, and accumulates their gradients and those of the other
  /// processes. All processes return the same; what one of them throws to stop, all throw. `resume()`
  /// restores the gradients of a half-done group, and returns whether it did.
  GradientsResult run_group(BatchSource& batches, detail::FunctionRef<bool()> resume);

  /// Keeps the loss of each group, for `loss`.
  void keep_loss() { keeps_loss_ = true; }
  const torch::Tensor& loss() const { return loss_; }

  /// The number of micro-batches in the group, those of this process.
  std::int64_t size() const { return static_cast<std::int64_t>(group_.size()); }

 private:
  GradientsResults finish_gradients(GradientsResult result);

  GradientsResult run_with_others(detail::FunctionRef<GradientsResult()> fetch_group,
                                  detail::FunctionRef<GradientsResult()> run_group);

  /// Accumulates the group's gradients; false if it was given up.
  bool add_gradients(detail::FunctionRef<bool()> resume);

 public:
  /// Applies one update with the accumulated gradients, unless those of fp16 have overflowed, and returns
  /// whether it did. Afterwards the training is at `next`.
  bool step(const DataPosition& next, double epoch);

 private:
  /// Makes the step of an optimizer, or leaves it out if `on_non_finite` rejects it or one before.
  void make_step(std::size_t optimizer, const Optimizer::Closure& closure = nullptr);

  /// Whether `on_non_finite` lets an update be made. Throws StopTraining if it says so.
  bool is_accepted(const torch::Tensor& grad_norm);

  /// The place of an optimizer if it has a turn of its own, with its own loss.
  std::optional<std::size_t> turn_of(std::size_t optimizer);

  /// The first one's gradients are complete. Those of each other follow, from its own loss and with the new
  /// weights of those before. A stop after the first comes true after the step.
  void step_in_turn();

  void add_gradients_in_turn();

  /// The step that a training step makes itself: with the last micro-batch of a group.
  void step_by_hand(std::size_t optimizer);

  void check_stepped_by_hand() const;

  /// Returns true.
  bool finish_step(const DataPosition& next, double epoch);

  void leave_group(const DataPosition& next, double epoch);

  /// Runs the group's remaining micro-batches; false if it was given up.
  bool run_micro_batches();

  void run_micro_batch(Batch& batch);

  void run_part(Batch& given);

  torch::Tensor loss_of_step(Batch& batch);

  Optimizer::Closure closure_of(std::size_t optimizer);

  /// For optimizers that evaluate the loss repeatedly: the first evaluation is the one just done.
  Optimizer::Closure reevaluation();

  torch::Tensor sum(const std::vector<torch::Tensor>& losses) const;

  EventSource& events_;
  TrainerCore& core_;
  OptimizerSteps steps_{events_};
  NonFiniteUpdates non_finite_{core_};
  MicroBatches group_{events_};
  CapturedStep captured_step_{events_};
  bool is_captured_ = false;  // the update runs through it
  StepSharing sharing_ = StepSharing::together;
  bool keeps_loss_ = false;
  torch::Tensor loss_;
  bool is_last_ = true;                        // the micro-batch under way is the last of its group
  std::deque<GradientReducer> reducers_;       // with several processes: one for all optimizers, or for each
  GradientReducer* reducer_ = nullptr;         // the one that belongs to the backward pass under way
  std::optional<GradientsResults> abandoned_;  // of a group that another process gave up before its end
};

}  // namespace etude::inline v0
