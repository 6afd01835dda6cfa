#include "etude/formats/png.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "etude/base/error.hpp"

namespace formats_png_test {

using namespace std::string_literals;

/// The width, height, bit depth and colour type in a PNG's first chunk, from its specification.
std::string header(const std::string& file) {
  REQUIRE(file.substr(0, 16) == "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR"s);
  return file.substr(16, 10);
}

/// The pixels, as libpng reads them in this format.
torch::Tensor read(const std::string& file, std::int64_t channels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&image, file.data(), file.size()) != 0);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  const auto pixels = torch::empty({image.height, image.width, channels}, torch::kByte);
  REQUIRE(png_image_finish_read(&image, nullptr, pixels.data_ptr(), 0, nullptr) != 0);
  return pixels;
}

TEST_CASE("grey, RGB and RGBA pictures keep their size, colour type and every pixel") {
  torch::manual_seed(1);
  const auto type = [](std::int64_t channels) { return channels == 1 ? '\0' : channels == 3 ? '\2' : '\6'; };
  for (const std::int64_t channels : {1, 3, 4}) {
    CAPTURE(channels);
    const auto pixels = torch::randint(0, 256, {5, 7, channels}, torch::kByte);
    const auto file = etude::png_file(pixels);
    CHECK(header(file) == "\0\0\0\7\0\0\0\5\x08"s + type(channels));
    CHECK(torch::equal(read(file, channels), pixels));
  }
}

TEST_CASE("a tensor that isn't a picture of bytes is refused") {
  const auto refuses = [](const torch::Tensor& pixels) {
    CHECK_THROWS_AS(etude::png_file(pixels), etude::DataError);
  };
  refuses(torch::zeros({2, 2}, torch::kByte));
  refuses(torch::zeros({2, 2, 3}));
  refuses(torch::zeros({2, 2, 2}, torch::kByte));
  refuses(torch::zeros({0, 2, 3}, torch::kByte));
  refuses(torch::zeros({3, 2, 2}, torch::kByte).permute({1, 2, 0}));
}

}  // namespace formats_png_test
