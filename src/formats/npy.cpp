#include "etude/formats/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/formats/mapped_tensor.hpp"
#include "etude/formats/npy_header.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0 {

torch::Tensor load_npy(const std::filesystem::path& path) {
  const auto file = detail::map_data(path);
  try {
    const auto header = read_npy_header(file->bytes());
    const auto dtype = detail::scalar_type_named(header.dtype->torch_name);
    if (!dtype) throw detail::npy_fault("descr: this LibTorch has no {}", header.dtype->torch_name);
    const auto bytes = file->bytes().subspan(header.data_begin);
    if (dtype == torch::kBool && !detail::are_bools(bytes))
      throw detail::npy_fault("descr is '|b1': each item must be 0 or 1");
    return detail::mapped_tensor(file, bytes, header.shape, *dtype);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

void save_npy(const std::filesystem::path& path, const torch::Tensor& tensor) {
  const std::string_view wanted = tensor.defined() ? c10::toString(tensor.scalar_type()) : "";
  const auto* dtype = std::ranges::find(npy_dtypes, wanted, &FileDtype::torch_name);
  if (dtype == npy_dtypes.end() || tensor.layout() != torch::kStrided || tensor.is_meta())
    throw DataError(fmt::format("{}: {} can't be saved: must be a dense tensor of a dtype that NumPy has",
                                path.string(), describe(tensor)));
  const auto sizes = tensor.sizes();
  const auto header = npy_header_bytes(*dtype, {sizes.data(), sizes.size()});
  detail::write_atomically(default_file_system(), path, [&](OutputFile& file) {
    file.write(std::as_bytes(std::span(header)));
    detail::write_items(file, tensor.detach());
  });
}

}  // namespace etude::inline v0
