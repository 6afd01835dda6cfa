#include "etude/formats/image.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>

#include "etude/base/error.hpp"
#include "etude/formats/mapped_tensor.hpp"

namespace etude::inline v0 {
namespace detail {

at::Tensor pixels_for(std::int64_t height, std::int64_t width, std::int64_t channels, std::size_t bytes,
                      double most_per_byte) {
  if (height < 1 || width < 1)
    throw DataError(fmt::format("it is {} x {} pixels: must be at least 1 x 1", width, height));
  if (height > most_pixels / width)
    throw DataError(
        fmt::format("it is {} x {} pixels: must be at most {} in all", width, height, most_pixels));
  if (static_cast<double>(height * width) > most_per_byte * static_cast<double>(bytes))
    throw DataError(fmt::format("it is truncated: {} bytes can't hold {} x {} pixels", bytes, width, height));
  return at::empty({height, width, channels}, at::kByte);
}

namespace {

bool begins_with(std::span<const std::byte> file, std::span<const unsigned char> bytes) {
  return file.size() >= bytes.size() && std::memcmp(file.data(), bytes.data(), bytes.size()) == 0;
}

at::Tensor to_grey(const at::Tensor& rgb) {
  auto grey = at::empty({rgb.size(0), rgb.size(1), 1}, at::kByte);
  const auto* from = rgb.data_ptr<std::uint8_t>();
  auto* to = grey.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < grey.numel(); ++i, from += 3)
    to[i] = static_cast<std::uint8_t>((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
  return grey;
}

/// uint8 [H, W, C].
at::Tensor decode_pixels(std::span<const std::byte> file, ImageChannels channels) {
  static constexpr std::array<unsigned char, 8> png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  static constexpr std::array<unsigned char, 3> jpeg = {0xff, 0xd8, 0xff};
  at::Tensor pixels;
  if (begins_with(file, png))
    pixels = decode_png(file);
  else if (begins_with(file, jpeg))
    pixels = decode_jpeg(file);
  else
    throw DataError("it isn't an image: must be a PNG or JPEG file");
  if (channels == ImageChannels::rgb) return pixels.expand({-1, -1, 3});
  return pixels.size(2) == 3 ? to_grey(pixels) : pixels;
}

}  // namespace

at::Tensor read_pixels(const std::filesystem::path& path, ImageChannels channels) {
  const auto file = map_data(path);
  try {
    return decode_pixels(file->bytes(), channels);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace detail

at::Tensor read_image(const std::filesystem::path& path, ImageChannels channels) {
  return detail::read_pixels(path, channels).permute({2, 0, 1}).contiguous();
}

at::Tensor decode_image(std::span<const std::byte> file, ImageChannels channels) {
  return detail::decode_pixels(file, channels).permute({2, 0, 1}).contiguous();
}

}  // namespace etude::inline v0
