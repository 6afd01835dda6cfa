#include "etude/formats/file_dtype.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

std::optional<std::uint64_t> bytes_of_array(std::span<const std::int64_t> shape, std::uint64_t item_size) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  // Empty dimensions count as 1, as in LibTorch's computation of strides.
  auto bytes = item_size;
  for (const auto size : shape) {
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
    if (factor > most / bytes) return std::nullopt;
    bytes *= factor;
  }
  return std::ranges::count(shape, 0) > 0 ? 0 : bytes;
}

void check_array_size(std::span<const std::int64_t> shape, std::string_view dtype, std::uint64_t item_size,
                      std::uint64_t bytes) {
  const auto needed = bytes_of_array(shape, item_size);
  if (!needed) throw DataError(fmt::format("shape ({}): it is too large", fmt::join(shape, ", ")));
  if (*needed != bytes)
    throw DataError(fmt::format("shape ({}) of {} needs {} bytes, but {} follow the header",
                                fmt::join(shape, ", "), dtype, *needed, bytes));
}

}  // namespace etude::inline v0::detail
