#include "etude/formats/mapped_tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

std::optional<torch::ScalarType> scalar_type_named(std::string_view name) {
  for (int i = 0; i < static_cast<int>(torch::ScalarType::NumOptions); ++i)
    if (c10::toString(static_cast<torch::ScalarType>(i)) == name) return static_cast<torch::ScalarType>(i);
  return std::nullopt;
}

torch::Tensor mapped_tensor(const std::shared_ptr<MappedFile>& file, std::span<std::byte> bytes,
                            const std::vector<std::int64_t>& shape, torch::ScalarType dtype) {
  const auto options = at::TensorOptions().dtype(dtype);
  const auto item_size = c10::elementSize(dtype);
  if (!bytes.empty() && reinterpret_cast<std::uintptr_t>(bytes.data()) % item_size == 0)
    return at::from_blob(
        bytes.data(), shape, [file](void*) {}, options);
  auto tensor = at::empty(shape, options);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::shared_ptr<MappedFile> map_data(const std::filesystem::path& path) {
  try {
    return std::make_shared<MappedFile>(path);
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

}  // namespace etude::inline v0::detail
