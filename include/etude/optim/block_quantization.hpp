#pragma once

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace etude::inline v0::detail {

/// The values of 8-bit codes in ascending order, from -1 or 0 to 1, by dynamic quantization (Dettmers 2016),
/// as in bitsandbytes: each of seven decades is divided evenly, twice as finely as the one below it.
class DynamicMap {
 public:
  explicit DynamicMap(bool has_sign);

  static const DynamicMap& with_sign() {
    static const DynamicMap& map = *new DynamicMap(true);  // devices may shut down before statics
    return map;
  }
  static const DynamicMap& without_sign() {
    static const DynamicMap& map = *new DynamicMap(false);
    return map;
  }

  const std::array<float, 256>& values() const { return values_; }

  /// The largest number that gets each code: halfway to the next value, and infinity for the last code.
  /// Without a sign, only 0 gets the code of 0: if a small denominator became 0, the step would be huge.
  const std::array<float, 256>& upper_bounds() const { return upper_bounds_; }

  /// Both arrays as cached float32 tensors on a device.
  struct Tables {
    torch::Tensor values, upper_bounds;
  };
  Tables on(const torch::Device& device) const;

  /// Returns the code of a number from -1 to 1; for NaN, an arbitrary code.
  std::uint8_t code(float x) const {
    const std::uint8_t lowest = lowest_[std::bit_cast<std::uint32_t>(x) >> 16];
    return static_cast<std::uint8_t>(lowest + (x > upper_bounds_[lowest]));
  }

 private:
  std::array<float, 256> values_, upper_bounds_;
  /// A lookup table: numbers with the same upper 16 bits have this code or the next one.
  std::array<std::uint8_t, 1 << 16> lowest_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, Tables> tables_;
};

/// The number of adjacent elements that share a scale.
inline constexpr std::int64_t quantization_block = 256;

inline std::int64_t quantization_blocks(std::int64_t elements) {
  return (elements + quantization_block - 1) / quantization_block;
}

using BlockValues = std::array<float, quantization_block>;

/// Computes the first `size` elements of a block from their codes, and sets the rest to 0.
void dequantize_block(const DynamicMap& map, const std::uint8_t* codes, float absmax, std::int64_t size,
                      BlockValues& values);

/// Computes the codes of a block's first `size` elements, and returns the block's largest magnitude, which is
/// its scale.
float quantize_block(const DynamicMap& map, const BlockValues& values, std::int64_t size,
                     std::uint8_t* codes);

/// The same for whole tensors on any device, with LibTorch's operators: `codes` is uint8 of any shape,
/// contiguous, and `absmax` has one float32 per block.
torch::Tensor dequantized(const DynamicMap& map, const torch::Tensor& codes, const torch::Tensor& absmax,
                          at::ScalarType type);
void quantize(const DynamicMap& map, const torch::Tensor& values, const torch::Tensor& codes,
              const torch::Tensor& absmax);

}  // namespace etude::inline v0::detail
