#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/checkpoint/checkpoint.hpp"

namespace etude {

class CallbackState;
struct TrainerCore;

namespace detail {

// The gradients and losses of an accumulation group that is under way. The buffers that its forward passes
// have changed come here too, and `model` gets those from before: it may be the best one.
StateDict half_done(TrainerCore& core, StateDict& model);
void load_half_done(TrainerCore& core, const StateDict& saved);

}  // namespace detail

/// What a checkpoint of where `core` is now consists of; its tensors are the model's own.
CheckpointContents checkpoint_contents(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::string reason);

/// Waits for the checkpoint that is being written behind the training, if any. Throws what has thrown there;
/// the checkpoint is then none.
void wait_for_checkpoint(TrainerCore& core);

/// Writes `output_dir/checkpoint-STEP` of where `core` is, whole or not at all, and returns its path;
/// `tensors` are what callbacks add to it, by file. With `save_async` it is on the disk when
/// `wait_for_checkpoint` has returned. Throws CheckpointError.
std::filesystem::path write_checkpoint(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::map<std::string, StateDict> tensors = {});

/// Writes `output_dir/trainer_state.json`: the state as it is now, the whole history of logs in it. Throws
/// CheckpointError.
void write_trainer_state(TrainerCore& core, const std::vector<CallbackState>& callbacks);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/write_checkpoint.ipp"
#endif
