#include "etude/report/picture.hpp"

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace etude::inline v0::detail {

namespace {

std::string big_endian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift & 0xFF);
  return bytes;
}

/// A chunk of a PNG file, with its checksum (PNG specification, annex D).
std::string png_chunk(std::string_view kind, std::string_view content) {
  const auto named = std::string(kind) + std::string(content);
  boost::crc_32_type sum;
  sum.process_bytes(named.data(), named.size());
  return big_endian(static_cast<std::uint32_t>(content.size())) + named + big_endian(sum.checksum());
}

/// Bytes in the format of zlib (RFC 1950), in stored blocks (RFC 1951, 3.2.4).
std::string stored_zlib(std::string_view bytes) {
  constexpr std::size_t most = 65535;
  std::string result = "\x78\x01";
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<unsigned char>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  for (std::size_t at = 0; at < bytes.size(); at += most) {
    const auto part = bytes.substr(at, most);
    const auto size = static_cast<std::uint16_t>(part.size());
    result += static_cast<char>(at + most >= bytes.size() ? 1 : 0);
    for (const unsigned number : {unsigned{size}, ~unsigned{size}}) {
      result += static_cast<char>(number & 0xFF);
      result += static_cast<char>(number >> 8 & 0xFF);
    }
    result += part;
  }
  return result + big_endian(b << 16 | a);
}

}  // namespace

std::string png_bytes(std::span<const std::uint8_t> pixels, std::size_t height, std::size_t width,
                      std::size_t channels, std::size_t most_side) {
  const auto factor = (std::max(height, width) - 1) / most_side + 1;
  const auto rows = (height - 1) / factor + 1, columns = (width - 1) / factor + 1;
  std::string lines;
  lines.reserve(rows * (columns * channels + 1));
  for (std::size_t row = 0; row < rows; ++row) {
    lines += '\0';  // no filter
    for (std::size_t column = 0; column < columns; ++column)
      for (std::size_t channel = 0; channel < channels; ++channel) {
        std::size_t sum = 0, count = 0;
        for (std::size_t y = row * factor; y < std::min(height, (row + 1) * factor); ++y)
          for (std::size_t x = column * factor; x < std::min(width, (column + 1) * factor); ++x, ++count)
            sum += pixels[(y * width + x) * channels + channel];
        lines += static_cast<char>((sum + count / 2) / count);
      }
  }
  constexpr std::array<char, 5> colour_types{0, 0, 0, 2, 6};  // by channels
  std::string header =
      big_endian(static_cast<std::uint32_t>(columns)) + big_endian(static_cast<std::uint32_t>(rows));
  header += '\x08';
  header += colour_types.at(channels);
  header.append(3, '\0');
  return "\x89PNG\r\n\x1A\n" + png_chunk("IHDR", header) + png_chunk("IDAT", stored_zlib(lines)) +
         png_chunk("IEND", "");
}

}  // namespace etude::inline v0::detail
