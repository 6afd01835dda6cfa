#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/random_state.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/linkage.hpp"

/// `output_dir/checkpoint-STEP`: weights, optimizer, schedule, generators, callbacks and where the training
/// is, in safetensors and JSON, with a manifest of checksums.
namespace etude {

class CallbackState;
struct TrainerControl;
struct TrainerCore;

inline constexpr const char* half_done_file = "half_done_accumulation.safetensors";

/// Everything that a checkpoint is written from.
struct CheckpointContents {
  std::int64_t step = 0;
  std::string reason;
  StateDict model;
  std::map<std::string, StateDict> tensors;  ///< by file
  std::map<std::string, std::string> texts;  ///< by file

  /// Makes it independent of what goes on.
  void detach(SnapshotBuffers& buffers);
  void write(FolderWriter& writer) const;
  Manifest facts() const;
};

namespace detail {

nlohmann::json stateful_callbacks(const std::vector<CallbackState>& callbacks, const TrainerControl& control);

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
#include "etude/checkpoint/checkpoint-inl.hpp"
#endif
