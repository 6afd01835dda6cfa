#pragma once

#include <cmath>
#include <cstdint>

#include "etude/events.hpp"
#include "etude/reflect/enum.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Where in its epochs a training is: none is under way, between two epochs (or before the first), in the
/// steps of one, or at the end of one, where its evaluation belongs.
ETUDE_ENUM(EpochPhase, outside, between, steps, end);

/// Follows a training through its epochs, also over a checkpoint, for callbacks that have one among their
/// members and pass these events on to it.
struct EpochPlace {
  ETUDE_STRUCT(EpochPlace, (std::int64_t, epochs_done, "epochs of this training that were gone through", 0),
               (EpochPhase, phase, "where in an epoch it is", EpochPhase::outside));

  /// `anew`: nothing of it is from a checkpoint.
  void begin(bool anew) {
    if (anew) *this = {};
    if (phase == EpochPhase::outside) phase = EpochPhase::between;
  }
  void on(const TrainBegin& e) { begin(e.state.global_step == 0 && e.state.log_history.empty()); }
  // One that goes on at the end of an epoch hears of its beginning too.
  void on(const EpochBegin&) {
    if (phase != EpochPhase::end) phase = EpochPhase::steps;
  }
  void on(const StepBegin&) { phase = EpochPhase::steps; }
  void on(const EpochEnd&) { phase = EpochPhase::end; }
  void on(const TrainingRunEpochEnd& e) {
    phase = EpochPhase::between;
    if (!is_cut_short(e)) ++epochs_done;
  }
  void on(const TrainEnd&) { phase = EpochPhase::outside; }

  /// The training ends in the middle of the epoch, which may go on when it is resumed.
  static bool is_cut_short(const Context& e) {
    const bool ends = e.control.should_training_stop || e.state.global_step >= e.state.max_steps;
    return ends && !e.control.should_epoch_stop && e.state.epoch != std::floor(e.state.epoch);
  }
};

}  // namespace etude
