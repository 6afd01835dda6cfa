#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

/// The tensors of files, as their headers describe them; no element is read.
namespace tool {

struct TensorInfo {
  std::string name, dtype;  ///< the latter as Python calls it: "float32"
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;

  std::uint64_t elements() const;
};

struct TensorFile {
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> tied;      ///< other names of tensors, each with the name listed above
  std::map<std::string, std::string> metadata;  ///< of a safetensors file
  std::vector<std::string> skipped;             ///< entries of a .pt file that aren't tensors

  std::uint64_t elements() const;
  std::uint64_t bytes() const;
};

/// Python's name of a dtype that LibTorch calls `name`.
std::string python_dtype(std::string_view name);

TensorFile safetensors_info(const std::filesystem::path& path);
/// Describes all dicts of a .pt file, with names from its root, or the one that `key` selects.
TensorFile torch_info(const std::filesystem::path& path, std::string_view key);

/// "12 tensors, 3,210 elements, 12.8 KB".
std::string totals_text(const TensorFile& file);

/// One line for each tensor, and for each further name.
std::string tensor_table(const TensorFile& file);

/// {"count", "elements", "bytes"}, and with `list` also "tensors" and "tied".
nlohmann::ordered_json tensors_json(const TensorFile& file, bool list);

}  // namespace tool
