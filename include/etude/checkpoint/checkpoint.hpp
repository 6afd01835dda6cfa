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

/// A checkpoint, `output_dir/checkpoint-STEP`, holds the weights, the state of the optimizer, schedule,
/// generators and callbacks, and the training's position, in safetensors and JSON files with a manifest of
/// checksums.
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

  /// Copies the tensors, so that training can continue while the checkpoint is written.
  void detach(SnapshotBuffers& buffers);
  /// Writes all files. Where nothing has changed, reuses files of the run's checkpoint `before`, if there is
  /// one.
  void write(FolderWriter& writer, const std::optional<std::filesystem::path>& before = {}) const;
  Manifest manifest() const;
};

namespace detail {

/// The program's tensors that are larger than this are written in parts of this size. Parts are larger if
/// there would be more than `most_parts` of them, or if a single row is larger.
inline constexpr std::size_t part_bytes = std::size_t{4} << 20;
inline constexpr std::size_t most_parts = 256;

/// The file name of one part of a program's tensor.
std::string program_part_file(std::string_view tensor, std::int64_t part);

/// The rank that an entry of a checkpoint belongs to, and the entry's name in that process: entries of all
/// ranks but 0 are named "ranks.RANK.NAME".
std::pair<std::int64_t, std::string> rank_and_name(const std::string& name);

}  // namespace detail
}  // namespace etude::inline v0
