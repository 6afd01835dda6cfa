#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

/// How a DataLoader shuffles. With `feistel`, a KeyedPermutation, an epoch starts immediately, however large
/// the dataset is. Checkpoints name the order, so that a version that doesn't know it refuses them.
ETUDE_ENUM(ShuffleOrder, feistel);

namespace detail {

/// The numbers below `size` (at most 2^62) in an order determined by (seed, epoch). It needs no list: each
/// element is computed independently, the same on every machine and with every version of LibTorch.
///
/// A generalized Feistel cipher for numbers below rows * columns, each about the square root of `size` (Black
/// and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"; FE2 of Bellare, Ristenpart, Rogaway and Stegers
/// 2009, "Format-Preserving Encryption"), applied repeatedly until the result is below `size` ("cycle
/// walking", from the same source). The round functions are streams of SplitMix64 (Steele, Lea, Flood 2014).
class KeyedPermutation {
 public:
  KeyedPermutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

  /// The number at this place in the order; both are in [0, size).
  std::int64_t operator[](std::int64_t place) const;

 private:
  // With sides of only sqrt(size), small sizes would have too few orders.
  static constexpr std::uint64_t least_side = 16;
  // After 4 rounds, the differences of adjacent numbers aren't uniform yet; after 6 they are.
  static constexpr std::size_t rounds = 8;

  std::uint64_t encipher(std::uint64_t number) const;
  /// Maps random bits to a number below `side`, which has at most 32 bits.
  static std::uint64_t below(std::uint64_t side, std::uint64_t random) {
    return ((random >> 32) * side) >> 32;
  }
  /// (a + b) modulo `side`; both are less than `side`.
  static std::uint64_t sum(std::uint64_t a, std::uint64_t b, std::uint64_t side) {
    return a + b < side ? a + b : a + b - side;
  }

  std::uint64_t size_, rows_, columns_;
  std::array<std::uint64_t, rounds> keys_;
};

}  // namespace detail
}  // namespace etude::inline v0
