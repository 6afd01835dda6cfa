#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "etude/checkpoint/model_files.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/libtorch/random_state.hpp"

/// `output_dir/checkpoint-STEP`: weights, optimizer, schedule, generators, callbacks and the training's
/// position, in safetensors and JSON, with a manifest of checksums.
namespace etude::inline v0 {

inline constexpr const char* half_done_file = "half_done_accumulation.safetensors";
inline constexpr const char* dataset_state_file = "dataset_state.safetensors";
inline constexpr const char* carried_state_file = "carried_state.safetensors";

/// Everything that goes into a checkpoint.
struct CheckpointContents {
  std::int64_t step = 0;
  std::string reason;
  StateDict model;
  std::map<std::string, StateDict> tensors;  ///< by file
  std::map<std::string, std::string> texts;  ///< by file

  /// Copies the tensors, so that training can go on while the checkpoint is written.
  void detach(SnapshotBuffers& buffers);
  void write(FolderWriter& writer) const;
  Manifest manifest() const;
};

namespace detail {

/// The process that an entry of a checkpoint belongs to, and its name there: entries of other processes than
/// the first are named "ranks.RANK.NAME".
std::pair<std::int64_t, std::string> rank_and_name(const std::string& name);

}  // namespace detail
}  // namespace etude::inline v0
