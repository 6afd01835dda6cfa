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

// The gradients and losses of the current accumulation group. Buffers that its forward passes changed go here
// too, and `model` gets their earlier values: it may be the best one.
StateDict half_done(TrainerCore& core, StateDict& model);
void load_half_done(TrainerCore& core, const StateDict& saved);

}  // namespace detail

/// The contents of a checkpoint of the current state; its tensors are the model's own.
CheckpointContents checkpoint_contents(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::string reason);

/// Writes `output_dir/checkpoint-STEP` of the current state, completely or not at all, and returns its path;
/// `tensors` are added by callbacks, by file. With `save_async` it is on the disk once
/// `CheckpointWriter::wait` has returned. Throws CheckpointError.
std::filesystem::path write_checkpoint(TrainerCore& core, const std::vector<CallbackState>& callbacks,
                                       std::map<std::string, StateDict> tensors = {});

/// Writes `output_dir/trainer_state.json`: the current state with the whole history of logs. Throws
/// CheckpointError.
void write_trainer_state(TrainerCore& core, const std::vector<CallbackState>& callbacks);

}  // namespace etude::inline v0
