#include "etude/formats/idx_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "etude/base/byte_order.hpp"
#include "etude/formats/file_dtype.hpp"

namespace etude::inline v0::detail {

std::string idx_dtype_names() {
  std::string names;
  for (const auto& dtype : idx_dtypes)
    names += fmt::format("{}0x{:02x} ({})", names.empty() ? "" : ", ", dtype.code, dtype.torch_name);
  return names;
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

IdxHeader read_idx_header(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(file[i]); };
  if (file.size() < 4) throw DataError(fmt::format("it has {} bytes, too few for an IDX file", file.size()));
  if (byte(0) == 0x1f && byte(1) == 0x8b)
    throw DataError("it is compressed with gzip: must be decompressed first (gunzip)");
  if (byte(0) != 0 || byte(1) != 0)
    throw DataError(fmt::format("it isn't an IDX file: its first two bytes are 0x{:02x} 0x{:02x}, must be 0",
                                byte(0), byte(1)));
  IdxHeader header;
  header.dtype = std::ranges::find(idx_dtypes, byte(2), &IdxDtype::code);
  if (header.dtype == idx_dtypes.end())
    throw DataError(fmt::format("dtype is 0x{:02x}: must be one of {}", byte(2), detail::idx_dtype_names()));
  constexpr std::size_t most_dimensions = 64;  // LibTorch's limit
  const std::size_t dimensions = byte(3);
  if (dimensions > most_dimensions)
    throw DataError(
        fmt::format("number of dimensions is {}: must be at most {}", dimensions, most_dimensions));
  header.data_begin = 4 + 4 * dimensions;
  if (file.size() < header.data_begin)
    throw DataError(
        fmt::format("its header is truncated, at {} of {} bytes", file.size(), header.data_begin));

  for (std::size_t i = 4; i < header.data_begin; i += 4)
    header.shape.push_back(static_cast<std::int64_t>(detail::big_endian(text.substr(i, 4))));
  detail::check_array_size(header.shape, header.dtype->torch_name, header.dtype->item_size,
                           file.size() - header.data_begin);
  return header;
}

}  // namespace etude::inline v0
