#include "etude/formats/wav.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <bit>
#include <limits>
#include <string_view>

#include "etude/base/byte_order.hpp"
#include "etude/base/error.hpp"

namespace etude::inline v0 {

std::string wav_file(const at::Tensor& frames, std::int64_t sample_rate) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::int64_t header = 44, sample = 2;
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  const auto samples = (frames * 32767).round().to(at::kShort).contiguous();
  const auto channels = samples.size(1), bytes = samples.numel() * sample;
  if (bytes + header > most)
    throw DataError(
        fmt::format("{} frames of {} channels: a WAV file has less than 4 GiB", frames.size(0), channels));
  if (channels > std::numeric_limits<std::uint16_t>::max() / sample)
    throw DataError(fmt::format("{} channels: a WAV file has at most 32767", channels));
  if (sample_rate > most / (channels * sample))
    throw DataError(
        fmt::format("{} channels at {} Hz: a WAV file has less than 4 GiB a second", channels, sample_rate));
  std::string file;
  file.reserve(static_cast<std::size_t>(header + bytes));
  const auto put = [&](std::int64_t value, std::size_t size) {
    file += detail::little_endian_bytes(static_cast<std::uint64_t>(value), size);
  };
  file += "RIFF";
  put(header - 8 + bytes, 4);
  file += "WAVEfmt ";
  put(16, 4);  // the size of this chunk
  put(1, 2);   // PCM
  put(channels, 2);
  put(sample_rate, 4);
  put(sample_rate * channels * sample, 4);
  put(channels * sample, 2);
  put(8 * sample, 2);
  file += "data";
  put(bytes, 4);
  file += std::string_view(static_cast<const char*>(samples.data_ptr()), static_cast<std::size_t>(bytes));
  return file;
}

}  // namespace etude::inline v0
