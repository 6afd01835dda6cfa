#include "etude/formats/image.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "etude/base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = std::as_bytes(std::span(data, size));
    const auto rgb = etude::decode_image(file), grey = etude::decode_image(file, etude::ImageChannels::grey);
    if (rgb.size(0) != 3 || grey.size(0) != 1 || rgb.size(1) != grey.size(1) || rgb.size(2) != grey.size(2))
      std::abort();
  } catch (const etude::DataError&) {
  }
  return 0;
}
