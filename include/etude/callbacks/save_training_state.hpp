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

namespace etude::inline v0 {

/// Keeps checkpoints in a separate folder, named `step_N`, `epoch_N` and `final`;
/// `train({.resume_from_checkpoint = path})` accepts each of them. Follows pytorch-accelerated's callback of
/// this name, except that it counts optimizer steps across resumed runs, and that it takes a checkpoint at
/// the end of a step, or at the end of an epoch after the evaluation.
///
/// The folder contains copies of checkpoints, by hard links if possible. The callback makes the trainer write
/// these checkpoints to `output_dir`, where `save_total_limit` still applies. A run counts only its own
/// copies: an earlier run's copies under other names stay.
///
/// Throws ArgumentError at the beginning of training for numbers below 1 and invalid intervals, and
/// CheckpointError if a folder with one of these names isn't a checkpoint.
struct SaveTrainingStateCallback {
  ETUDE_STRUCT(SaveTrainingStateCallback,
               (std::string, save_dir, "folder of the copies; empty is training_states in output_dir", ""),
               (std::optional<std::int64_t>, save_every_n_epochs,
                "epochs between copies; unset is none" | at_least(1)),
               (std::optional<Interval>, save_every_n_steps,
                "update steps between copies, or another interval; unset is none"),
               (bool, save_at_end, "also copy the last checkpoint, as `final`, when training ends", true),
               (std::optional<std::int64_t>, max_checkpoints,
                "keep only this many of the newest; unset is all" | at_least(1)));

  struct State {
    ETUDE_STRUCT(State, (IntervalTimer, timer, "the elapsed part of save_every_n_steps"),
                 (EpochCount, epochs, "completed epochs"), (CheckpointKeeper, copies, "copies not made yet"),
                 (std::vector<std::string>, kept, "existing copies, oldest first"));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const Stop& e);
  // Takes `SaveBegin&`, because a handler of `const SaveBegin&` would have to come after all callbacks that
  // add tensors.
  void on(SaveBegin& e) { state.copies.on(e); }
  void on(const Save& e);
};

}  // namespace etude::inline v0
