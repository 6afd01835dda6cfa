#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/io/file_system.hpp"

/// A model's weights as Hugging Face's libraries name their files: `model.safetensors`, or shards with an
/// index.
namespace etude {

class FolderReader;
class FolderWriter;

/// Tensors by name, in a module's own order.
using StateDict = std::vector<std::pair<std::string, at::Tensor>>;

inline constexpr const char* model_file = "model.safetensors";
inline constexpr const char* model_index_file = "model.safetensors.index.json";
/// Bytes of tensors in one file, if not one of them is larger.
inline constexpr std::uint64_t default_max_shard_size = 5'000'000'000;

namespace detail {

/// What every file of a model says of itself.
const std::map<std::string, std::string>& model_metadata();

/// Tensors that are written once, and what else each is called.
struct UntiedState {
  StateDict tensors;
  std::map<std::string, std::string> kept_name;
};

/// One name, the first in sorted order, of each tensor that has several. As Python's save_model, but that
/// views of one memory that differ in where they begin or how they are laid out are tensors of their own:
/// where such views overlap, Python's load_model(strict=True) calls one of their names unexpected.
UntiedState without_ties(const StateDict& state);

/// Whether a file of a model of several files may be called so.
bool is_shard_name(std::string name);

}  // namespace detail

/// Writes a state as one `model.safetensors`, or where its tensors have more than `max_shard_size` bytes, as
/// several files and their index. A tensor that has several names is written once; the metadata of its file
/// tells the others, so that Python's safetensors.torch.load_model finds them tied as they were.
void write_model_files(FolderWriter& writer, const StateDict& state,
                       std::uint64_t max_shard_size = default_max_shard_size);

/// The state that `write_model_files` or one of Hugging Face's libraries wrote, in the order of the files'
/// bytes; names of one tensor share their memory. Throws CheckpointError that names the file.
StateDict read_model_files(FolderReader& reader);

/// `write_model_files` into a folder without a manifest, which is made if it isn't there. Each file is whole
/// or not there; files of a model that was there before are removed, in an order in which no moment shows a
/// mixture of both. Throws CheckpointError for the folder of a checkpoint, which would be damaged.
void save_model_files(const std::filesystem::path& directory, const StateDict& state,
                      std::uint64_t max_shard_size = default_max_shard_size,
                      FileSystem& files = default_file_system());

/// `read_model_files` of a folder with a manifest or without.
StateDict load_model_files(const std::filesystem::path& directory);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/checkpoint/impl/model_files.ipp"
#endif
