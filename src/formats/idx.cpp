#include "etude/formats/idx.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>

#include "etude/base/error.hpp"
#include "etude/formats/idx_header.hpp"
#include "etude/formats/mapped_tensor.hpp"

namespace etude::inline v0 {

torch::Tensor load_idx(const std::filesystem::path& path) {
  const auto file = detail::map_data(path);
  try {
    const auto header = read_idx_header(file->bytes());
    const auto dtype = *detail::scalar_type_named(header.dtype->torch_name);
    const auto bytes = file->bytes().subspan(header.data_begin);
    const auto item_size = header.dtype->item_size;
    if (item_size == 1) return detail::mapped_tensor(file, bytes, header.shape, dtype);
    auto tensor = at::empty(header.shape, at::TensorOptions().dtype(dtype));
    auto* to = static_cast<std::byte*>(tensor.data_ptr());
    for (std::size_t at = 0; at < bytes.size(); at += item_size)
      std::reverse_copy(bytes.data() + at, bytes.data() + at + item_size, to + at);
    return tensor;
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace etude::inline v0
