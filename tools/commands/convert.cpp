#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "etude/base/error.hpp"
#include "etude/checkpoint/model_files.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/formats/torch_file.hpp"
#include "etude/io/entry_name.hpp"
#include "output.hpp"
#include "renaming.hpp"
#include "run_folder.hpp"
#include "tensors.hpp"

namespace tool {
namespace {

namespace fs = std::filesystem;
using etude::detail::printable;

struct Source {
  fs::path path;
  etude::StateDict tensors;
  std::map<std::string, std::string> metadata = {};
  std::vector<std::string> skipped = {};
};

Source read_source(const ConvertOptions& options) {
  fs::path path = without_slash(options.in);
  const auto kind = kind_of(path);
  if (kind == Kind::torch) {
    auto file = etude::load_torch_file(path, options.key);
    return {.path = path, .tensors = std::move(file.tensors), .skipped = std::move(file.skipped)};
  }
  if (!options.key.empty())
    throw UsageError(fmt::format("--key is '{}': must be given with a .pt file only", options.key));
  if (kind == Kind::run) path = newest_checkpoint(path);
  Source source{.path = path, .tensors = etude::load_model_files(path)};
  if (kind == Kind::safetensors) {
    const auto file = safetensors_info(path);
    for (const auto& [key, value] : file.metadata)
      if (!file.tied.contains(key)) source.metadata.emplace(key, value);
  }
  return source;
}

/// Rejects a path that can't become a new safetensors file.
void check_target(const fs::path& path, bool force) {
  if (path.extension() != ".safetensors")
    throw UsageError(
        fmt::format("OUT is '{}': must end in .safetensors, the only format that is written; for a .pt file, "
                    "load the result in Python: torch.save(safetensors.torch.load_file(\"OUT\"), \"OUT.pt\")",
                    path.string()));
  std::error_code error;
  const auto status = fs::status(path, error);
  if (fs::is_directory(status))
    throw UsageError(fmt::format("OUT is '{}': must not be a folder", path.string()));
  if (fs::exists(status) && !force)
    throw UsageError(fmt::format("OUT is '{}', which exists: --force overwrites it", path.string()));
  if (const auto folder = fs::absolute(path).parent_path(); !fs::is_directory(folder, error))
    throw etude::CheckpointError(
        fmt::format("{} can't be written: {} isn't a folder", path.string(), folder.string()));
  for (auto folder = fs::absolute(path).parent_path(); folder != folder.root_path();
       folder = folder.parent_path())
    if (fs::exists(folder / etude::manifest_file, error))
      throw UsageError(
          fmt::format("OUT is '{}': must not lie in a checkpoint, whose manifest would not fit: {}",
                      path.string(), folder.string()));
}

torch::ScalarType scalar_type(WrittenDtype dtype) {
  switch (dtype) {
    case WrittenDtype::bfloat16:
      return torch::kBFloat16;
    case WrittenDtype::float16:
      return torch::kHalf;
    case WrittenDtype::float32:
      return torch::kFloat;
  }
  throw etude::ArgumentError("dtype has no name: must be bfloat16, float16 or float32");
}

/// Counts numbers that the conversion makes infinite.
std::int64_t overflows(const torch::Tensor& before, const torch::Tensor& after) {
  const auto infinite = after.isinf();
  if (!infinite.any().item<bool>()) return 0;
  return (infinite & ~before.to(torch::kDouble).isinf()).sum().item<std::int64_t>();
}

void convert_dtypes(etude::StateDict& tensors, torch::ScalarType dtype) {
  for (auto& [name, tensor] : tensors) {
    if (!torch::isFloatingType(tensor.scalar_type()) || tensor.scalar_type() == dtype) continue;
    auto converted = tensor.to(dtype);
    if (const auto count = overflows(tensor, converted))
      complain(fmt::format("'{}': {} too large for {} and become infinite", printable(name),
                           counted(static_cast<std::uint64_t>(count), "number"),
                           python_dtype(c10::toString(dtype))));
    tensor = std::move(converted);
  }
}

Json json_of(const Source& source, const fs::path& target, const std::vector<Renamed>& names,
             const etude::detail::UntiedState& written) {
  std::map<std::string, std::string> old_names;
  for (const auto& [old, now] : names) old_names.emplace(now, old);
  auto tensors = Json::array();
  for (const auto& [name, tensor] : written.tensors)
    tensors.push_back({{"name", name},
                       {"from", old_names.at(name)},
                       {"dtype", python_dtype(c10::toString(tensor.scalar_type()))},
                       {"shape", tensor.sizes().vec()}});
  return {{"from", source.path.string()},
          {"to", target.string()},
          {"tensors", std::move(tensors)},
          {"tied", written.kept_name},
          {"skipped", source.skipped}};
}

}  // namespace

int convert(const ConvertOptions& options) {
  const fs::path target = options.out;
  check_target(target, options.force);
  const auto renaming = Renaming(options.map, options.rename, options.only, options.drop);
  auto source = read_source(options);

  std::vector<std::string> all;
  for (const auto& [name, tensor] : source.tensors) all.push_back(name);
  const auto names = renaming.apply(all);
  std::map<std::string, torch::Tensor> by_name(source.tensors.begin(), source.tensors.end());
  etude::StateDict chosen;
  for (const auto& [old, now] : names) chosen.emplace_back(now, by_name.at(old));

  // Weights are tied if they name the same tensor before the conversion, which copies them.
  auto written = etude::detail::without_ties(chosen);
  if (options.dtype) convert_dtypes(written.tensors, scalar_type(*options.dtype));
  auto metadata = std::move(source.metadata);
  metadata.insert({"format", "pt"});
  for (const auto& [name, kept] : written.kept_name)
    if (!metadata.emplace(name, kept).second)
      throw etude::CheckpointError(
          fmt::format("{}: '{}' is the name of a tied tensor and a key of the metadata", source.path.string(),
                      printable(name)));
  etude::save_safetensors(target, written.tensors, metadata);

  for (const auto& name : source.skipped) complain(fmt::format("skipped, not a tensor: {}", name));
  if (options.json) {
    print_json(json_of(source, target, names, written));
  } else {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : written.tensors) bytes += tensor.nbytes();
    print(fmt::format("{}: {}, {}, from {}\n", plain(target.string()),
                      counted(written.tensors.size(), "tensor"), bytes_text(bytes),
                      plain(source.path.string())));
  }
  return success;
}

}  // namespace tool
