#include "etude/io/checksum.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

namespace etude::inline v0 {

std::string Checksum::hex() const {
  const auto hash = XXH3_128bits_digest(&state_);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.update(bytes);
  return sum.hex();
}

}  // namespace etude::inline v0
