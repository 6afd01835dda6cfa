#include "etude/metrics/sample.hpp"

#include <ATen/TensorUtils.h>
#include <c10/util/ArrayRef.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/io/entry_name.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

[[noreturn]] void throw_bad_sample(std::string_view name, std::string_view fault) {
  throw DataError(fmt::format("sample {}: {}", quoted_utf8(name), fault));
}

std::string sample_name(std::string_view name) {
  if (!is_utf8(name)) throw_bad_sample(name, "its name must be UTF-8");
  if (const auto fault = fault_of_entry_name(name); !fault.empty())
    throw_bad_sample(name, fmt::format("its name must be a relative path, and {}", fault));
  return std::string(name);
}

bool is_image_channels(std::int64_t size) { return size == 1 || size == 3 || size == 4; }

/// Copies the tensor to the CPU as float32. Its values must be in [least, most].
at::Tensor sample_floats(std::string_view name, const at::Tensor& tensor, double least, double most) {
  const auto floats = tensor.to(at::kCPU, at::kFloat);
  const auto smallest = floats.min().item<double>(), largest = floats.max().item<double>();
  if (!(smallest >= least && largest <= most))
    throw_bad_sample(name, fmt::format("its values are from {} to {}: must be within [{}, {}]", smallest,
                                       largest, least, most));
  return floats;
}

void check_sample_tensor(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) throw_bad_sample(name, "its tensor is undefined");
  if (tensor.layout() != at::kStrided) throw_bad_sample(name, "its tensor must be dense");
}

[[noreturn]] void throw_bad_sample_shape(std::string_view name, const at::Tensor& tensor,
                                         std::string_view allowed) {
  throw_bad_sample(name, fmt::format("its shape is [{}]: must be {}, and not empty",
                                     fmt::join(tensor.sizes(), ", "), allowed));
}

}  // namespace

}  // namespace detail

Sample text_sample(std::string_view name, std::string_view text) {
  return {detail::sample_name(name), mended_utf8(text)};
}

Sample image_sample(std::string_view name, const at::Tensor& image, std::string_view caption) {
  auto checked = detail::sample_name(name);
  detail::check_sample_tensor(name, image);
  auto pixels = image.detach();
  if (pixels.dim() == 2)
    pixels = pixels.unsqueeze(2);
  else if (pixels.dim() == 3 && detail::is_image_channels(pixels.size(0)))
    pixels = pixels.permute({1, 2, 0});
  if (pixels.dim() != 3 || !detail::is_image_channels(pixels.size(2)) || pixels.numel() == 0)
    detail::throw_bad_sample_shape(name, image, "[C, H, W], [H, W, C] with 1, 3 or 4 channels, or [H, W]");
  if (pixels.is_floating_point())
    pixels = (detail::sample_floats(name, pixels, 0, 1) * 255).round().to(at::kByte);
  else if (pixels.scalar_type() != at::kByte)
    detail::throw_bad_sample(name, fmt::format("its dtype is {}: must be uint8, or floating-point in [0, 1]",
                                               at::toString(pixels.scalar_type())));
  // A copy, since the caller may write to the tensor, and a view isn't contiguous.
  pixels = pixels.to(at::kCPU, at::kByte, /*non_blocking=*/false, /*copy=*/true).contiguous();
  return {std::move(checked), ImageSample{std::move(pixels)}, mended_utf8(caption)};
}

Sample audio_sample(std::string_view name, const at::Tensor& audio, std::int64_t sample_rate,
                    std::string_view caption) {
  auto checked = detail::sample_name(name);
  detail::check_sample_tensor(name, audio);
  if (sample_rate < 1 || sample_rate > std::numeric_limits<std::int32_t>::max())
    detail::throw_bad_sample(name, fmt::format("its sample rate is {}: must be above 0, in Hz", sample_rate));
  if (!audio.is_floating_point())
    detail::throw_bad_sample(name, fmt::format("its dtype is {}: must be floating-point in [-1, 1]",
                                               at::toString(audio.scalar_type())));
  if (audio.dim() < 1 || audio.dim() > 2 || audio.numel() == 0)
    detail::throw_bad_sample_shape(name, audio, "[frames], [channels, frames] or [frames, channels]");
  auto frames = detail::sample_floats(name, audio.detach(), -1, 1);
  if (frames.dim() == 1)
    frames = frames.unsqueeze(1);
  else if (frames.size(0) <= frames.size(1))
    frames = frames.t();
  return {std::move(checked), AudioSample{frames.clone(at::MemoryFormat::Contiguous), sample_rate},
          mended_utf8(caption)};
}

}  // namespace etude::inline v0
