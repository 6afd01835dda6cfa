#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace etude::inline v0 {

struct ImageSample {
  at::Tensor pixels;  ///< uint8 [H, W, C] on the CPU, contiguous; C is 1 (grey), 3 (RGB) or 4 (RGBA)
};

struct AudioSample {
  at::Tensor frames;             ///< float32 [frames, channels] in [-1, 1] on the CPU, contiguous
  std::int64_t sample_rate = 0;  ///< in Hz
};

/// A text, an image or audio that shows what a model does, for trackers. The functions below make them.
struct Sample {
  std::string name;
  std::variant<std::string, ImageSample, AudioSample> content;
  std::string caption = {};
};

/// These functions copy a tensor to the CPU, which waits for its device. A name is a relative path in UTF-8,
/// such as "cat" or "cats/first", since files are named after it. They throw DataError with the sample's name
/// if the name is invalid, or if the tensor has a wrong shape, a wrong type or values out of range.

/// Text must be UTF-8.
Sample text_sample(std::string_view name, std::string_view text);

/// `image` is [C, H, W] or [H, W, C] with 1, 3 or 4 channels, or [H, W]. A shape that fits both counts as [C,
/// H, W]. The dtype is uint8, or floating-point with values in [0, 1].
Sample image_sample(std::string_view name, const at::Tensor& image, std::string_view caption = "");

/// `audio` is floating-point in [-1, 1]: [frames], [channels, frames] or [frames, channels]. The smaller of
/// two sizes is the number of channels; equal sizes count as [channels, frames].
Sample audio_sample(std::string_view name, const at::Tensor& audio, std::int64_t sample_rate,
                    std::string_view caption = "");

}  // namespace etude::inline v0
