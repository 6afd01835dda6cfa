#include "etude/checkpoint/torch_to_safetensors.hpp"

#include <filesystem>
#include <string_view>

namespace etude::inline v0 {

TorchFile torch_to_safetensors(const std::filesystem::path& torch_file,
                               const std::filesystem::path& safetensors_file, std::string_view key) {
  auto file = load_torch_file(torch_file, key);
  const auto untied = detail::without_ties(file.tensors);
  auto metadata = detail::model_metadata();
  metadata.insert(untied.kept_name.begin(), untied.kept_name.end());
  save_safetensors(safetensors_file, untied.tensors, metadata);
  return file;
}

}  // namespace etude::inline v0
