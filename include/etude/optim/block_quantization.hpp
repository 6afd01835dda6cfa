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

/// The values of 8-bit codes, rising from -1 or 0 to 1, by dynamic quantization (Dettmers 2016), as
/// bitsandbytes has them: each of seven decades is divided evenly, twice as finely as the one below it.
class DynamicMap {
 public:
  explicit DynamicMap(bool has_sign);

  static const DynamicMap& with_sign() {
    static const DynamicMap& map = *new DynamicMap(true);  // devices may end before static objects
    return map;
  }
  static const DynamicMap& without_sign() {
    static const DynamicMap& map = *new DynamicMap(false);
    return map;
  }

  const std::array<float, 256>& values() const { return values_; }

  /// The largest number with each code; infinity for the last one. Halfway to the next value, but without a
  /// sign the code of 0 is for 0 only: as a denominator, a small number that became 0 would give a huge step.
  const std::array<float, 256>& upper_bounds() const { return upper_bounds_; }

  /// Both as float32 tensors on a device, which are kept.
  struct Tables {
    torch::Tensor values, upper_bounds;
  };
  Tables on(const torch::Device& device) const;

  /// The code of a number from -1 to 1. Any code for NaN.
  std::uint8_t code(float x) const {
    const std::uint8_t lowest = lowest_[std::bit_cast<std::uint32_t>(x) >> 16];
    return static_cast<std::uint8_t>(lowest + (x > upper_bounds_[lowest]));
  }

 private:
  std::array<float, 256> values_, upper_bounds_;
  /// Numbers that share their upper 16 bits have this code or the next.
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

/// The first `size` elements of a block; the others are 0.
void dequantize_block(const DynamicMap& map, const std::uint8_t* codes, float absmax, std::int64_t size,
                      BlockValues& values);

/// Sets their codes and returns the largest magnitude of the block.
float quantize_block(const DynamicMap& map, const BlockValues& values, std::int64_t size,
                     std::uint8_t* codes);

/// The same for whole tensors, by operators, on any device: `codes` are uint8 of any shape, contiguous, and
/// `absmax` has one float32 a block.
torch::Tensor dequantized(const DynamicMap& map, const torch::Tensor& codes, const torch::Tensor& absmax,
                          at::ScalarType type);
void quantize(const DynamicMap& map, const torch::Tensor& values, const torch::Tensor& codes,
              const torch::Tensor& absmax);

}  // namespace etude::inline v0::detail
