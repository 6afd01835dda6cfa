#include "etude/formats/npy_header.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace {

void require(bool good) {
  if (!good) std::abort();
}

std::uint64_t items_of(std::span<const std::int64_t> shape) {
  if (std::ranges::count(shape, 0) > 0) return 0;
  unsigned __int128 items = 1;
  for (const auto size : shape) {
    require(size >= 0);
    items *= static_cast<unsigned __int128>(size);
    require(items <= INT64_MAX);
  }
  return static_cast<std::uint64_t>(items);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const auto header = etude::read_npy_header(file);
    require(header.dtype != nullptr && header.data_begin <= size);
    require(items_of(header.shape) * header.dtype->item_size == size - header.data_begin);
    auto copy = etude::npy_header_bytes(*header.dtype, header.shape);
    copy.append(size - header.data_begin, '\0');
    const auto again = etude::read_npy_header(std::as_bytes(std::span(copy)));
    require(again.dtype == header.dtype && again.shape == header.shape);
  } catch (const etude::DataError&) {
  }
  return 0;
}
