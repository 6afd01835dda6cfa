#pragma once

#ifndef ETUDE_IMAGES
#error "etude/formats/image.hpp needs a library: link etude::images"
#endif

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "etude/reflect/enum.hpp"

/// Needs libpng (http://www.libpng.org), libjpeg-turbo (https://libjpeg-turbo.org) and the CMake target
/// etude::images. Not included by etude.hpp.
namespace etude::inline v0 {

/// The channels of a decoded image: 1 or 3.
ETUDE_ENUM(ImageChannels, grey, rgb);

/// Reads a PNG or JPEG file: uint8 [C, H, W] on the CPU. The file's content decides which of the two it is,
/// not its name. The pixels are those of Pillow's `Image.open(path).convert("RGB")`, or `"L"` for grey: alpha
/// is dropped, colour profiles, gamma and orientation are ignored, and the grey of a colour is (19595 R +
/// 38470 G + 7471 B) / 65536, rounded. For files with 16 bits per channel, the upper 8 are kept; Pillow clips
/// grey ones instead.
///
/// Throws DataError, with the path, for a file that can't be read, is neither a PNG nor a JPEG, is damaged or
/// truncated, or has more than 178,956,970 pixels, Pillow's limit too.
at::Tensor read_image(const std::filesystem::path& path, ImageChannels channels = ImageChannels::rgb);

/// The same for the content of a file.
at::Tensor decode_image(std::span<const std::byte> file, ImageChannels channels = ImageChannels::rgb);

namespace detail {

inline constexpr std::int64_t most_pixels = 178'956'970;

/// Like `read_image`, but returns uint8 [H, W, C].
at::Tensor read_pixels(const std::filesystem::path& path, ImageChannels channels);

/// Like `decode_image`, but returns uint8 [H, W, C] with the channels that the file has: 1 or 3.
at::Tensor decode_png(std::span<const std::byte> file);
at::Tensor decode_jpeg(std::span<const std::byte> file);

/// An uninitialized uint8 tensor [H, W, C]. Throws DataError if it would have too many pixels, or more than
/// `most_per_byte` for each of the file's `bytes`: either the file is truncated or its header is wrong.
at::Tensor pixels_for(std::int64_t height, std::int64_t width, std::int64_t channels, std::size_t bytes,
                      double most_per_byte);

}  // namespace detail
}  // namespace etude::inline v0
