#include "etude/formats/idx_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

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

  // Empty dimensions count as 1, as in LibTorch's computation of strides.
  std::uint64_t bytes = header.dtype->item_size;
  for (std::size_t i = 4; i < header.data_begin; i += 4) {
    const auto size = std::uint32_t{byte(i)} << 24 | std::uint32_t{byte(i + 1)} << 16 |
                      std::uint32_t{byte(i + 2)} << 8 | byte(i + 3);
    header.shape.push_back(size);
    const std::uint64_t factor = std::max<std::uint32_t>(size, 1);
    if (factor > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / bytes)
      throw DataError(fmt::format("shape ({}, ...): it is too large", fmt::join(header.shape, ", ")));
    bytes *= factor;
  }
  if (std::ranges::count(header.shape, 0) > 0) bytes = 0;
  if (const auto there = file.size() - header.data_begin; there != bytes)
    throw DataError(fmt::format("shape ({}) of {} needs {} bytes, but {} follow the header",
                                fmt::join(header.shape, ", "), header.dtype->torch_name, bytes, there));
  return header;
}

}  // namespace etude::inline v0
