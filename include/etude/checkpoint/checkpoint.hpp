#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
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
inline constexpr const char* program_values_file = "program_state.json";
inline constexpr const char* program_tensors_file = "program_state.safetensors";

/// Everything that goes into a checkpoint.
struct CheckpointContents {
  std::int64_t step = 0;
  std::string reason;
  StateDict model;
  std::map<std::string, StateDict> tensors;  ///< by file
  std::map<std::string, std::string> texts;  ///< by file

  /// Copies the tensors, so that training can go on while the checkpoint is written.
  void detach(SnapshotBuffers& buffers);
  /// Files of the run's checkpoint `before`, if there is one, are used again where nothing has changed.
  void write(FolderWriter& writer, const std::optional<std::filesystem::path>& before = {}) const;
  Manifest manifest() const;
};

namespace detail {

/// Larger tensors of the program are written in parts: of this many bytes, or more if there would be more
/// than `most_parts`, but at least of one row.
inline constexpr std::size_t part_bytes = std::size_t{4} << 20;
inline constexpr std::size_t most_parts = 256;

/// The file of a part of a tensor of the program.
std::string program_part_file(std::string_view tensor, std::int64_t part);

/// The process that an entry of a checkpoint belongs to, and its name there: entries of other processes than
/// the first are named "ranks.RANK.NAME".
std::pair<std::int64_t, std::string> rank_and_name(const std::string& name);

}  // namespace detail
}  // namespace etude::inline v0
