#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/callbacks/epoch_count.hpp"
#include "etude/callbacks/interval_timer.hpp"
#include "etude/events.hpp"
#include "etude/reflect/interval.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Keeps checkpoints in a folder of their own, called `step_N`, `epoch_N` and `final`, each of which
/// `train({.resume_from_checkpoint = path})` takes. Follows pytorch-accelerated's callback of this name, but
/// that steps are those of the optimizer, counted over resumed runs, and that a checkpoint is of the end of
/// its step, or of its epoch after the evaluation.
///
/// What it keeps are copies, of hard links where that can be, of checkpoints that it has the trainer write to
/// `output_dir`, where `save_total_limit` goes on to hold. A run counts its own alone: what an earlier one
/// has left under another name stays.
///
/// Throws ArgumentError where training begins for numbers below 1 and intervals that can't pass,
/// CheckpointError for a folder of such a name that is no checkpoint.
struct SaveTrainingStateCallback {
  using this_callback = SaveTrainingStateCallback;
  ETUDE_STRUCT(SaveTrainingStateCallback,
               (std::string, save_dir, "folder for them; empty is training_states in output_dir", ""),
               (std::optional<std::int64_t>, save_every_n_epochs,
                "epochs from one to the next; unset is none"),
               (std::optional<Interval>, save_every_n_steps,
                "update steps from one to the next, or another interval; unset is none"),
               (bool, save_at_end, "one more, `final`, where training ends", true),
               (std::optional<std::int64_t>, max_checkpoints, "keep as many, the newest; unset is all"),
               (IntervalTimer, timer, "what has passed of save_every_n_steps"),
               (EpochCount, epochs, "those that are done"),
               (CheckpointKeeper, copies, "those that are yet to be made"),
               (std::vector<std::string>, kept, "those that are there, the oldest first"));

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const Stop& e);
  // Not const: it doesn't matter where this stands among those who add tensors.
  void on(SaveBegin& e) { copies.on(e); }
  void on(const Save& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/save_training_state.ipp"
#endif
