#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "etude/events.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/parallel/communicator.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The state of an EpochLoss in a checkpoint.
struct EpochLossState {
  ETUDE_STRUCT(EpochLossState, (RunningMeanState, losses, "of the update steps"),
               (std::int64_t, examples, "of the update steps", 0),
               (std::vector<double>, group_losses, "of the micro-batches of the update under way"),
               (std::vector<double>, group_shares, "of their means; 0 where they add up by themselves"),
               (std::vector<std::int64_t>, group_examples, "of these"));
};

/// The mean training loss of an epoch over the examples of its updates, before division for accumulation.
/// Never waits for a device before `take`. Make it a member of a callback that passes these events to it.
class EpochLoss {
 public:
  using this_callback = EpochLoss;
  /// `from_scratch`: no state was restored from a checkpoint.
  void begin(bool from_scratch);
  void on(const StepBegin&);
  void on(const ForwardBegin&) { ++micro_batches_; }
  void on(const BackwardEnd& e);
  void on(const StepRestarted&);
  void on(const StepSkipped&) { group_.clear(); }
  void on(const StepEnd&);

  /// Returns the mean over all processes, which must all call it, unless there was no update, and starts
  /// over.
  std::optional<double> take(Communicator& communicator);

  EpochLossState state();
  void load_state(const EpochLossState& state);

 private:
  void forget();

  RunningMean losses_;  // weighted so that they sum to the loss of all examples
  std::int64_t examples_ = 0;
  struct MicroBatch {
    at::Tensor loss;
    double share;
    std::int64_t examples;
  };
  std::vector<MicroBatch> group_;
  std::size_t micro_batches_ = 0;  // in the group, without those that an optimizer evaluates again
  bool is_resumed_ = false;        // The current group began before the checkpoint.
};

}  // namespace etude::inline v0
