#pragma once

#include <cstdint>
#include <string>

#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Keeps two checkpoints of a training with `lr_scheduler_type` warmup_stable_decay: of the last step before
/// the learning rate begins to fall, `checkpoint_N_wsd_pre_decay`, from which a longer training can go on as
/// if it had never been about to end, and of the step at which it has fallen, or the last one if that comes
/// first, `checkpoint_N_wsd_post_decay`. Follows pytorch-accelerated's callback of this name; what it calls
/// initial_checkpoint is `train({.resume_from_checkpoint = path})` here.
///
/// To go on from the first one with more steps, resume it with a greater `max_steps` or `num_train_epochs`:
/// the fall begins later then. Both are copies, of hard links where that can be, of checkpoints in
/// `output_dir`. A training that ends before the fall is done has no second one.
///
/// Throws ArgumentError where training begins with another schedule.
struct WSDCheckpointCallback {
  using this_callback = WSDCheckpointCallback;
  ETUDE_STRUCT(WSDCheckpointCallback,
               (std::string, save_dir, "folder for them; empty is wsd_checkpoints in output_dir", ""),
               (CheckpointKeeper, copies, "those that are yet to be made"));

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  // Not const: it doesn't matter where this stands among those who add tensors.
  void on(SaveBegin& e) { copies.on(e); }
  void on(const Save& e) { copies.make(e); }

  std::int64_t pre_decay_step = 0;   ///< Of this training.
  std::int64_t post_decay_step = 0;  ///< Of this training.
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/wsd_checkpoint.ipp"
#endif
