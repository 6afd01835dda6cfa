#include "etude/checkpoint/model_files.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

namespace {

/// The content of `model.safetensors.index.json`.
struct ModelIndex {
  using Names = std::map<std::string, std::string>;
  ETUDE_STRUCT(ModelIndex, (nlohmann::json, metadata, "total_size: bytes of all tensors"),
               (Names, weight_map, "the file of each tensor"));
};

}  // namespace

namespace detail {

const std::map<std::string, std::string>& model_metadata() {
  static const std::map<std::string, std::string> metadata = {{"format", "pt"}};
  return metadata;
}

UntiedState without_ties(const StateDict& state) {
  using Memory = std::tuple<const void*, std::vector<std::int64_t>, std::vector<std::int64_t>,
                            torch::ScalarType, std::string>;
  std::map<Memory, std::string> first;
  std::vector<const Memory*> memory_of;
  for (const auto& [name, tensor] : state) {
    memory_of.push_back(nullptr);
    // The metadata has a key of that name already, so a tensor of that name can't be listed there.
    if (!tensor.defined() || tensor.layout() != torch::kStrided || tensor.is_meta() || tensor.numel() == 0 ||
        tensor.is_conj() || tensor.is_neg() || model_metadata().contains(name))
      continue;
    const auto [found, is_new] =
        first.emplace(Memory{tensor.data_ptr(), tensor.sizes().vec(), tensor.strides().vec(),
                             tensor.scalar_type(), tensor.device().str()},
                      name);
    if (!is_new) found->second = std::min(found->second, name);
    memory_of.back() = &found->first;
  }
  UntiedState result;
  for (std::size_t i = 0; i < state.size(); ++i) {
    const auto& name = state[i].first;
    const auto& kept = memory_of[i] ? first.at(*memory_of[i]) : name;
    if (kept == name) {
      result.tensors.push_back(state[i]);
    } else if (!result.kept_name.emplace(name, kept).second) {
      throw CheckpointError(fmt::format("tensor '{}': duplicate name", printable(name)));
    }
  }
  return result;
}

namespace {

/// One file of a model, and the tensors in it.
struct Shard {
  std::string file;
  StateDict tensors;
  std::map<std::string, std::string> metadata = model_metadata();
};

struct ModelPlan {
  std::vector<Shard> shards;
  /// The text of the index; empty if one file holds everything.
  std::string index;
};

/// Fills the shards one after another in the state's order, as Hugging Face's libraries do.
ModelPlan plan_model_files(const StateDict& state, std::uint64_t max_shard_size) {
  auto untied = without_ties(state);
  ModelPlan plan;
  std::uint64_t size = 0, total_size = 0;
  for (auto& [name, tensor] : untied.tensors) {
    const std::uint64_t bytes = tensor.defined() ? tensor.nbytes() : 0;
    if (plan.shards.empty() || (!plan.shards.back().tensors.empty() && size + bytes > max_shard_size)) {
      plan.shards.emplace_back();
      size = 0;
    }
    size += bytes;
    total_size += bytes;
    plan.shards.back().tensors.emplace_back(name, tensor);
  }
  if (plan.shards.empty()) plan.shards.emplace_back();

  ModelIndex index{.metadata = {{"total_size", total_size}}};
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    auto& shard = plan.shards[i];
    shard.file = plan.shards.size() == 1
                     ? model_file
                     : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, plan.shards.size());
    for (const auto& [name, tensor] : shard.tensors) {
      if (!index.weight_map.emplace(name, shard.file).second)
        throw CheckpointError(fmt::format("tensor '{}': duplicate name", printable(name)));
    }
  }
  for (const auto& [name, kept] : untied.kept_name) {
    if (index.weight_map.contains(name))
      throw CheckpointError(fmt::format("tensor '{}': duplicate name", printable(name)));
    const auto& file = index.weight_map.at(kept);
    std::ranges::find(plan.shards, file, &Shard::file)->metadata.emplace(name, kept);
  }
  if (plan.shards.size() > 1) plan.index = to_json_text(index, KeyOrder::sorted);
  return plan;
}

ModelIndex read_model_index(FolderReader& reader) {
  const auto path = (reader.folder() / model_index_file).string();
  ModelIndex index;
  try {
    index = from_json_text<ModelIndex>(reader.text(model_index_file));
  } catch (const ArgumentError& error) {
    throw CheckpointError(fmt::format("{}: {}", path, error.what()));
  }
  if (index.weight_map.empty()) throw CheckpointError(fmt::format("{}: weight_map is empty", path));
  for (const auto& [name, file] : index.weight_map) {
    if (!fault_of_entry_name(file).empty() || file.find('/') != file.npos)
      throw CheckpointError(
          fmt::format("{}: weight_map: '{}' is mapped to '{}', which isn't a file of this folder", path,
                      printable(name), printable(file)));
    if (!reader.has(file))
      throw CheckpointError(fmt::format("{}: weight_map: '{}' is mapped to {}, which is missing", path,
                                        printable(name), printable(file)));
  }
  return index;
}

/// Adds the other names of a file's tensors, which its metadata lists.
void add_tied_names(SafeTensors& file) {
  const std::map<std::string, torch::Tensor> by_name(file.tensors.begin(), file.tensors.end());
  for (const auto& [name, kept] : file.metadata) {
    const auto found = by_name.find(kept);
    if (found != by_name.end() && !by_name.contains(name) && !model_metadata().contains(name))
      file.tensors.emplace_back(name, found->second);
  }
}

/// Throws CheckpointError unless a file holds the tensors that the index lists for it. Other tensors are an
/// error if `strict`, and are dropped otherwise.
void check_shard(const std::filesystem::path& path, StateDict& tensors, const ModelIndex& index,
                 bool strict) {
  const auto file = path.filename().string();
  const auto fault = [&](const std::string& name, std::string_view what) {
    return CheckpointError(
        fmt::format("{}: tensor '{}' {} {}", path.string(), printable(name), what, model_index_file));
  };
  std::set<std::string> names;
  std::erase_if(tensors, [&](const auto& entry) {
    const auto& name = entry.first;
    const auto stated = index.weight_map.find(name);
    const bool is_known = stated != index.weight_map.end();
    const bool is_meant = is_known && stated->second == file;
    if (is_meant) names.insert(name);
    if (!is_meant && strict) throw fault(name, is_known ? "is here and in another file in" : "is not in");
    return !is_meant;
  });
  for (const auto& [name, stated] : index.weight_map)
    if (stated == file && !names.contains(name)) throw fault(name, "is missing, and in");
}

}  // namespace

void write_tensors(FolderWriter& writer, const std::string& file, const StateDict& tensors,
                   const std::map<std::string, std::string>& metadata) {
  const auto out = writer.create(file);
  write_safetensors(*out, tensors, metadata);
  out->finish();
}

bool is_shard_name(std::string name) {
  for (auto& letter : name)
    if (letter >= '1' && letter <= '9') letter = '0';
  return name == "model-00000-of-00000.safetensors";
}

}  // namespace detail

void write_model_files(FolderWriter& writer, const StateDict& state, std::uint64_t max_shard_size) {
  const auto plan = detail::plan_model_files(state, max_shard_size);
  for (const auto& shard : plan.shards)
    detail::write_tensors(writer, shard.file, shard.tensors, shard.metadata);
  if (!plan.index.empty()) writer.write_text(model_index_file, plan.index);
}

StateDict read_model_files(FolderReader& reader) {
  if (reader.has(model_file)) {
    auto file = load_safetensors(reader.map(model_file));
    detail::add_tied_names(file);
    return std::move(file.tensors);
  }
  if (!reader.has(model_index_file))
    throw CheckpointError(fmt::format("{} has no model: neither {} nor {} exists", reader.folder().string(),
                                      model_file, model_index_file));
  const auto index = detail::read_model_index(reader);
  std::set<std::string> names;
  for (const auto& [name, file] : index.weight_map) names.insert(file);
  StateDict state;
  for (const auto& name : names) {
    auto file = load_safetensors(reader.map(name));
    detail::check_shard(reader.folder() / name, file.tensors, index, reader.manifest().has_value());
    detail::add_tied_names(file);
    std::ranges::move(file.tensors, std::back_inserter(state));
  }
  return state;
}

void save_model_files(const std::filesystem::path& directory, const StateDict& state,
                      std::uint64_t max_shard_size, FileSystem& files) {
  const auto plan = detail::plan_model_files(state, max_shard_size);
  files.create_directories(directory);
  std::error_code error;
  if (std::filesystem::exists(directory / manifest_file, error))
    throw CheckpointError(fmt::format("{} can't be written: the folder is a checkpoint, with a manifest",
                                      (directory / plan.shards.front().file).string()));
  std::set<std::string> stale;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (const auto name = entry->path().filename().string(); detail::is_shard_name(name)) stale.insert(name);
  if (error) throw detail::file_error(directory, "can't be read", error.value());

  if (plan.shards.size() > 1) {
    files.remove_all(directory / model_index_file);
    files.sync(directory);
  }
  for (const auto& shard : plan.shards) {
    save_safetensors(directory / shard.file, shard.tensors, shard.metadata, files);
    stale.erase(shard.file);
  }
  if (plan.shards.size() > 1) {
    write_file(files, directory / model_index_file, plan.index);
    stale.insert(model_file);
  } else {
    stale.insert(model_index_file);
  }
  for (const auto& name : stale) files.remove_all(directory / name);
  files.sync(directory);
}

StateDict load_model_files(const std::filesystem::path& path) {
  if (std::error_code error;
      path.extension() == ".safetensors" && !std::filesystem::is_directory(path, error)) {
    auto file = load_safetensors(path);
    detail::add_tied_names(file);
    return std::move(file.tensors);
  }
  FolderReader reader(path, false);
  return read_model_files(reader);
}

}  // namespace etude::inline v0
