#include "etude/formats/idx_header.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace {

void require(bool good) {
  if (!good) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto header = etude::read_idx_header(std::as_bytes(std::span(data, size)));
    require(header.dtype != nullptr && header.data_begin <= size);
    unsigned __int128 bytes = header.dtype->item_size;
    if (std::ranges::count(header.shape, 0) > 0) bytes = 0;
    for (const auto length : header.shape) {
      require(length >= 0);
      bytes *= static_cast<unsigned __int128>(length);
      require(bytes <= INT64_MAX);
    }
    require(static_cast<std::uint64_t>(bytes) == size - header.data_begin);
  } catch (const etude::DataError&) {
  }
  return 0;
}
