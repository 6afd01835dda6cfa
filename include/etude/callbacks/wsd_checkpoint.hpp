#pragma once

#include <cstdint>
#include <string>

#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Keeps two checkpoints of a training with `lr_scheduler_type` warmup_stable_decay.
/// `checkpoint_N_wsd_pre_decay` is taken after the last step before the learning rate decays; a longer
/// training can continue from it as if no decay had been planned. `checkpoint_N_wsd_post_decay` is taken
/// after the step that completes the decay, or after the last step if that comes first. Follows
/// pytorch-accelerated's callback of this name; instead of its `initial_checkpoint`, use
/// `train({.resume_from_checkpoint = path})`.
///
/// To continue with more steps, resume from the first checkpoint with a greater `max_steps` or
/// `num_train_epochs`: the decay then begins later. Both are copies, by hard links if possible, of
/// checkpoints in `output_dir`. A training that ends before the decay is complete writes no second
/// checkpoint.
///
/// Throws ArgumentError at the beginning of training with another schedule.
struct WSDCheckpointCallback {
  ETUDE_STRUCT(WSDCheckpointCallback,
               (std::string, save_dir, "folder of the copies; empty is wsd_checkpoints in output_dir", ""));

  struct State {
    ETUDE_STRUCT(State, (CheckpointKeeper, copies, "copies not made yet"));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  // Takes `SaveBegin&`, because a handler of `const SaveBegin&` would have to come after all callbacks that
  // add tensors.
  void on(SaveBegin& e) { state.copies.on(e); }
  void on(const Save& e) { state.copies.make(e); }

  std::int64_t pre_decay_step = 0;   ///< in this training
  std::int64_t post_decay_step = 0;  ///< in this training
};

}  // namespace etude::inline v0
