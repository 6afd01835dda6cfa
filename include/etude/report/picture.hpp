#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace etude::inline v0::detail {

/// Encodes an uncompressed PNG file, so that pages can have pictures without libpng: 8 bits per channel, rows
/// of `width` pixels with 1 (grey), 3 (RGB) or 4 (RGBA) channels. A picture with more than `most_side` pixels
/// in a row or column is scaled down by a whole factor, and each pixel is the mean of a square. `pixels` must
/// have height * width * channels bytes, and at least one.
std::string png_bytes(std::span<const std::uint8_t> pixels, std::size_t height, std::size_t width,
                      std::size_t channels, std::size_t most_side);

}  // namespace etude::inline v0::detail
