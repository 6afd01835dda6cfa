#pragma once

#include <torch/types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "etude/data/random.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

/// How an optimizer rounds bfloat16 parameters, which it updates in float32. Its moments are bfloat16 too and
/// always rounded stochastically: rounded to nearest, a mean with a decay of 0.999 would never shrink.
/// - `nearest`: an update below 2^-9 of a parameter is lost.
/// - `kahan`: the rounding error is kept for the next step, as in Kahan summation. It is the lower half (16
///   bits) of the float32 value, so parameters are as precise as in float32, at the cost of 2 bytes each.
/// - `stochastic`: the value is rounded to one of its two neighbours, with probabilities that make the mean
///   exact.
ETUDE_ENUM(Rounding, nearest, kahan, stochastic);

namespace detail {

/// The name of the moment that `kahan` keeps.
inline constexpr std::string_view compensation_name = "compensation";

/// Random bits for one update of one parameter. An element's bits depend only on its index, not on threads or
/// the layout.
class RandomBits {
 public:
  RandomBits(std::uint64_t seed, std::uint64_t stream, std::int64_t step)
      : key_(mix(mix(seed, stream), static_cast<std::uint64_t>(step))) {}

  /// The first 32 bits of an element: its index, mixed by xorshifts and multiplications with the constants of
  /// lowbias32 (Wellons 2018), a bijection. `Words` is uint32 or a vector of it.
  template <class Words>
  Words first(Words index) const {
    Words x = index + static_cast<std::uint32_t>(key_);
    x = (x ^ (x >> 16)) * 0x21f0aaadU ^ static_cast<std::uint32_t>(key_ >> 32);
    x = (x ^ (x >> 15)) * 0xd35a2d97U;
    return x ^ (x >> 15);
  }
  /// The next 32 bits, by Marsaglia's xorshift (2003).
  template <class Words>
  static Words next(Words bits) {
    bits = bits ^ (bits << 13);
    bits = bits ^ (bits >> 17);
    return bits ^ (bits << 5);
  }

  /// The 16 bits for the `rounding`th rounding of elements `from`, ..., `from + size - 1`, as int64.
  torch::Tensor bits(std::int64_t from, std::int64_t size, std::size_t rounding,
                     const torch::Device& device) const;

 private:
  std::uint64_t key_;
};

/// Derives the stream of a parameter's random bits from its name.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t result = 0;
  for (const char letter : name) result = mix(result, static_cast<unsigned char>(letter));
  return result;
}

/// Four adjacent elements, as the 32-bit words of float32 numbers with the same values.
struct Bfloat16Words {
  typedef std::uint32_t Words __attribute__((vector_size(16)));
  typedef std::uint16_t Halves __attribute__((vector_size(8)));
  typedef std::int16_t SignedHalves __attribute__((vector_size(8)));
  typedef std::int32_t SignedWords __attribute__((vector_size(16)));
  typedef float Floats __attribute__((vector_size(16)));

  static constexpr std::int64_t size = 4;

  static Words load(const void* from, std::int64_t count = size) {
    Halves halves{};
    std::memcpy(&halves, from, static_cast<std::size_t>(count) * 2);
#if defined(__SSE2__)
    return Words(
        _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_cvtsi64_si128(std::bit_cast<std::int64_t>(halves))));
#else
    return __builtin_convertvector(halves, Words) << 16;
#endif
  }
  /// Writes the upper halves of the words.
  static void store(void* to, Words words, std::int64_t count = size) {
#if defined(__SSE2__)
    const auto shifted = _mm_srai_epi32(__m128i(words), 16);
    const std::int64_t halves = _mm_cvtsi128_si64(_mm_packs_epi32(shifted, shifted));
#else
    const auto halves = __builtin_convertvector(words >> 16, Halves);
#endif
    std::memcpy(to, &halves, static_cast<std::size_t>(count) * 2);
  }

  /// Adds the differences that `split_off` wrote.
  static Words compensated(Words words, const std::int16_t* from, std::int64_t count = size) {
    SignedHalves halves{};
    std::memcpy(&halves, from, static_cast<std::size_t>(count) * 2);
    return words + Words(__builtin_convertvector(halves, SignedWords));
  }
  /// Rounds to nearest and writes the difference, which is the lower half as a signed number.
  static Words split_off(Words words, std::int16_t* to, std::int64_t count = size) {
    const auto halves = __builtin_convertvector(words, Halves);
    std::memcpy(to, &halves, static_cast<std::size_t>(count) * 2);
    return words + 0x8000U;
  }

  /// Rounds to nearest, with ties to even, like c10::BFloat16.
  static Words to_nearest(Words words) { return words + (0x7fffU + ((words >> 16) & 1U)); }
  /// Rounds stochastically; `random` has 16 random bits.
  static Words at_random(Words words, Words random) { return words + random; }

  static Floats floats(Words words) { return Floats(words); }
  /// Replaces NaN with a pattern that stays NaN however it is rounded.
  static Words words(Floats floats) {
    const auto is_nan = floats != floats;
    return is_nan ? Words{} + 0x7fc00000U : Words(floats);
  }
};

/// How the values of one update are rounded.
struct Bfloat16Rounding {
  Rounding rounding = Rounding::nearest;
  RandomBits random{0, 0, 0};
  std::int64_t first = 0;           ///< the index of the first element
  torch::Tensor compensation = {};  ///< int16, with kahan
};

/// The values as float32, plus their compensation if that is defined.
torch::Tensor in_float32(const torch::Tensor& values, const torch::Tensor& compensation = {});

/// Writes float32 values to a bfloat16 tensor. `number` is the index of this rounding within the update and
/// selects the random bits.
void store_rounded(const torch::Tensor& to, const torch::Tensor& values, Rounding rounding,
                   const Bfloat16Rounding& by, std::size_t number);

}  // namespace detail
}  // namespace etude::inline v0
