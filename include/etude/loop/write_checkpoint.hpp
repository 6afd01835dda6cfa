#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/checkpoint/checkpoint.hpp"

namespace etude::inline v0 {

class CallbackState;
struct TrainerCore;

namespace detail {

// Returns the gradients and losses of the current accumulation group, and the buffers that its forward passes
// changed. `model` gets the buffers' earlier values, since it may be the best model.
StateDict half_done(TrainerCore& core, StateDict& model);
void load_half_done(TrainerCore& core, const StateDict& saved);

}  // namespace detail

/// Returns the contents of a checkpoint of the current state. Its tensors are the model's, not copies.
CheckpointContents checkpoint_contents(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::string reason);

/// Writes `output_dir/checkpoint-STEP` of the current state, completely or not at all, and returns its path;
/// `tensors` are those that callbacks add, by file name. With `save_async`, the checkpoint is on the disk
/// once `CheckpointWriter::wait` has returned. Throws CheckpointError.
std::filesystem::path write_checkpoint(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::map<std::string, StateDict> tensors = {});

/// Writes `output_dir/trainer_state.json`: the current state with the whole history of logs. Throws
/// CheckpointError.
void write_trainer_state(TrainerCore& core, const std::vector<CallbackState>& callbacks);

}  // namespace etude::inline v0
