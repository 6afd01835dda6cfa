#include "etude/report/picture.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <vector>

#include "etude/base/base64.hpp"

namespace report_picture_test {

using etude::detail::png_bytes;

// Python's zlib (level 0) and struct give these bytes for the same chunks.
TEST_CASE("a picture is a PNG file") {
  const std::array<std::uint8_t, 4> grey{0, 85, 170, 255};
  CHECK(etude::detail::base64(png_bytes(grey, 2, 2, 1, 256)) ==
        "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAAAAABX3VL4AAAAEUlEQVR4AQEGAPn/AABVAKr/A60B/0d3rmkAAAAASU"
        "VORK5CYII=");
  const std::array<std::uint8_t, 4> pixel{1, 2, 3, 4};
  CHECK(etude::detail::base64(png_bytes(pixel, 1, 1, 4, 256)) ==
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAEElEQVR4AQEFAPr/AAECAwQAGQALubDj6wAAAABJRU"
        "5ErkJggg==");
}

TEST_CASE("a picture of more bytes than a block holds has several") {
  const std::vector<std::uint8_t> pixels(300 * 250, 7);
  const auto file = png_bytes(pixels, 300, 250, 1, 300);
  // 300 rows of 251 bytes make a block of 65,535 and one of 9,765 bytes; PNG adds 57 bytes for chunks, zlib
  // 6, and the blocks' headers 10.
  CHECK(file.size() == 75'300 + 57 + 6 + 10);
}

TEST_CASE("a large picture is made smaller, by the mean of squares") {
  // Rows 0 to 4 and columns 0 to 2 make squares of 2 x 2, and smaller remainders at the ends.
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 15; ++i) pixels.push_back(static_cast<std::uint8_t>(10 * i));
  const std::array<std::uint8_t, 6> expected{20, 35, 80, 95, 125, 140};
  CHECK(png_bytes(pixels, 5, 3, 1, 3) == png_bytes(expected, 3, 2, 1, 256));
}

}  // namespace report_picture_test
