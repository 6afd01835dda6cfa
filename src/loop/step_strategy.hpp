#pragma once

#include <torch/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "etude/base/function_ref.hpp"
#include "etude/data/batch.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/optim/flat_parameters.hpp"
#include "etude/parallel/gradient_reducer.hpp"
#include "micro_batches.hpp"
#include "optimizer_steps.hpp"

namespace etude::inline v0 {

/// How the optimizers share an update: see StepSharing. Also owns the reducers that add up the gradients of
/// several processes, since these depend on which optimizers share a backward pass.
class StepStrategy {
 public:
  /// All must outlive it.
  static std::unique_ptr<StepStrategy> make(StepSharing sharing, EventSource& events, OptimizerSteps& steps,
                                            MicroBatches& batches);
  StepStrategy(EventSource& events, OptimizerSteps& steps, MicroBatches& batches)
      : events_(events), core_(events.core()), steps_(steps), batches_(batches) {}
  StepStrategy(const StepStrategy&) = delete;
  StepStrategy& operator=(const StepStrategy&) = delete;
  virtual ~StepStrategy() = default;

  /// Called once if there are several processes: adds up the gradients of `parameters`, a list for each
  /// optimizer.
  void join(const std::vector<FlatParameters*>& parameters);

  /// Called when an update begins.
  virtual void begin() {}
  /// The optimizer whose loss is computed first, if each optimizer has its own loss.
  virtual std::optional<std::size_t> first_turn() const { return {}; }
  /// Called before the backward pass of a micro-batch.
  virtual void begin_backward(bool is_last);
  /// Makes the training step of a micro-batch, and returns its share of the group's loss.
  virtual torch::Tensor loss_of(Batch& batch);
  /// Whether micro-batches run several times, so that handlers must get copies.
  virtual bool repeats_batches() const { return false; }
  /// Whether callbacks may stop a training between two micro-batches. A step of several parts is made as a
  /// whole.
  virtual bool stops_between_batches() const { return false; }
  /// Whether all processes must do the same in a backward pass.
  virtual bool is_on_one_path() const { return false; }

  /// Makes the steps of the optimizers that are due. The first optimizer's gradients are complete;
  /// `add_gradients` adds the gradients of each later one in its turn.
  virtual void make_steps(detail::FunctionRef<void()> add_gradients) = 0;

  /// Makes the step of one optimizer before the steps of the others, if the program decides when.
  virtual void step_early(std::size_t) {}

  /// Adds up the gradients of the backward pass under way over all processes; null with a single process.
  GradientReducer* reducer() const { return reducer_; }

 protected:
  /// The parameters whose gradients each reducer adds up.
  virtual std::vector<std::vector<FlatParameters*>> by_reducer(
      const std::vector<FlatParameters*>& parameters) const;

  EventSource& events_;
  TrainerCore& core_;
  OptimizerSteps& steps_;
  MicroBatches& batches_;
  std::deque<GradientReducer> reducers_;
  GradientReducer* reducer_ = nullptr;
};

}  // namespace etude::inline v0
