#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "etude/io/file_system.hpp"

/// Reads and writes a model's weights in files with Hugging Face's names: `model.safetensors`, or shards with
/// an index.
namespace etude::inline v0 {

class FolderReader;
class FolderWriter;

/// Tensors by name, in the module's order.
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* model_index_file = "model.safetensors.index.json";
/// The maximum size of the tensors in one file, in bytes, unless a single tensor is larger.
inline constexpr std::uint64_t default_max_shard_size = 5'000'000'000;

namespace detail {

/// Metadata that every file of a model has.
const std::map<std::string, std::string>& model_metadata();

/// Tensors that are each written once, and their other names.
struct UntiedState {
  StateDict tensors;
  std::map<std::string, std::string> kept_name;
};

/// Keeps one name, the first in sorted order, of each tensor that has several. This follows Python's
/// save_model, except that views of one memory with a different offset or layout are separate tensors: where
/// such views overlap, Python's load_model(strict=True) reports one of their names as unexpected.
UntiedState without_ties(const StateDict& state);

/// Writes tensors into a safetensors file of a folder.
void write_tensors(FolderWriter& writer, const std::string& file, const StateDict& tensors,
                   const std::map<std::string, std::string>& metadata = {});

/// True if `name` is a valid file name for a shard of a model.
bool is_shard_name(std::string name);

}  // namespace detail

/// Writes a state as one `model.safetensors` or, if its tensors exceed `max_shard_size` bytes, as several
/// files and their index. A tensor with several names is written once; the file's metadata lists the other
/// names, so that Python's safetensors.torch.load_model ties them again.
void write_model_files(FolderWriter& writer, const StateDict& state,
                       std::uint64_t max_shard_size = default_max_shard_size);

/// Reads a state that `write_model_files` or one of Hugging Face's libraries wrote, in the order of the
/// files' bytes; several names of one tensor share its memory. Throws a CheckpointError that names the file.
StateDict read_model_files(FolderReader& reader);

/// Like `write_model_files`, but for a folder without a manifest, which is created if it doesn't exist. Each
/// file is complete or absent. Files of a previous model are removed in an order that never leaves a mixture
/// of both. Throws CheckpointError if the folder is a checkpoint, which would be damaged.
void save_model_files(const std::filesystem::path& directory, const StateDict& state,
                      std::uint64_t max_shard_size = default_max_shard_size,
                      FileSystem& files = default_file_system());

/// Like `read_model_files`, but for a folder with or without a manifest, or for one safetensors file.
StateDict load_model_files(const std::filesystem::path& path);

}  // namespace etude::inline v0
