#include "etude/formats/stored_tensors.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/safetensors.hpp"

namespace etude::inline v0 {

Tensors stored_tensors(const std::filesystem::path& path, const std::vector<std::string>& names) {
  std::vector<torch::Tensor> tensors;
  std::vector<std::string> all;
  for (auto& [name, tensor] : load_safetensors(path).tensors) {
    all.push_back(name);
    tensors.push_back(std::move(tensor));
  }
  Tensors stored(std::move(tensors), std::move(all));
  if (names.empty()) return stored;
  std::vector<torch::Tensor> chosen;
  try {
    for (const auto& name : names) chosen.push_back(stored.at(name));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
  return {std::move(chosen), names};
}

}  // namespace etude::inline v0
