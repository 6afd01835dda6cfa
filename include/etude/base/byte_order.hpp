#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

/// The number in at most eight bytes, the most significant byte first.
constexpr std::uint64_t big_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

/// The number in at most eight bytes, the least significant byte first.
constexpr std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (auto i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

/// The `size` lowest bytes of a number, the least significant one first.
inline std::string little_endian_bytes(std::uint64_t number, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(number >> 8 * i & 0xFF);
  return bytes;
}

}  // namespace etude::inline v0::detail
