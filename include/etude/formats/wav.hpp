#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace etude::inline v0 {

/// Returns the bytes of a WAV file (RIFF, 16-bit PCM) with these frames, a float tensor [frames, channels] in
/// [-1, 1] on the CPU: 1 becomes 32767 and -1 becomes -32767, rounded, as libsndfile does. Throws DataError
/// if the file would be 4 GiB or more, or if a number in its header would be too large.
std::string wav_file(const at::Tensor& frames, std::int64_t sample_rate);

}  // namespace etude::inline v0
