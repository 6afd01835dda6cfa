#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "etude/events.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// What an EpochLoss keeps over a checkpoint.
struct EpochLossState {
  ETUDE_STRUCT(EpochLossState, (RunningMeanState, losses, "of the update steps"),
               (std::int64_t, examples, "of the update steps", 0),
               (std::vector<double>, group_losses, "of the micro-batches of the update under way"),
               (std::vector<double>, group_shares, "of their means; 0 where they add up by themselves"),
               (std::vector<std::int64_t>, group_examples, "of these"));
};

/// The mean training loss of an epoch over its examples, as it was before it was divided for accumulation, of
/// the updates that were made. Never waits for a device before `take`. For callbacks that have one among
/// their members and pass these events on to it.
class EpochLoss {
 public:
  using this_callback = EpochLoss;
  /// `anew`: nothing of it is from a checkpoint.
  void begin(bool anew);
  void on(const StepBegin&);
  void on(const ForwardBegin&) { ++micro_batches_; }
  void on(const BackwardEnd& e);
  void on(const StepRestarted&);
  void on(const StepEnd&);

  /// The mean, unless there was no update; it begins anew.
  std::optional<double> take();

  EpochLossState state();
  void load_state(const EpochLossState& state);

 private:
  void forget();

  RunningMean losses_;  // each weighted so that their sum is that of the loss of every example
  std::int64_t examples_ = 0;
  struct MicroBatch {
    at::Tensor loss;
    double share;
    std::int64_t examples;
  };
  std::vector<MicroBatch> group_;
  std::size_t micro_batches_ = 0;  // of the group, without those that an optimizer evaluates again
  bool goes_on_ = false;           // The group under way was begun before the checkpoint.
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/epoch_loss.ipp"
#endif
