#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "etude/data/random.hpp"
#include "etude/reflect/enum.hpp"

namespace etude::inline v0 {

/// How a DataLoader shuffles. Checkpoints store it, so that a resumed training keeps its order.
/// - `feistel`: a KeyedPermutation, with which an epoch starts immediately, however large the dataset;
/// - `fisher_yates`: a shuffled list of all examples; used for checkpoints that don't store the order.
ETUDE_ENUM(ShuffleOrder, fisher_yates, feistel);

namespace detail {

/// The numbers below `size` (at most 2^62) in an order determined by (seed, epoch). It needs no list: each
/// element is computed independently, the same on every machine and with every LibTorch.
///
/// A generalized Feistel cipher for numbers below rows * columns, each about the square root of `size` (Black
/// and Rogaway 2002, "Ciphers with Arbitrary Finite Domains"; FE2 of Bellare, Ristenpart, Rogaway and Stegers
/// 2009, "Format-Preserving Encryption"), applied repeatedly until the result is below `size` ("cycle
/// walking", from the same source). The round functions are streams of SplitMix64 (Steele, Lea, Flood 2014).
class KeyedPermutation {
 public:
  KeyedPermutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
      : size_(static_cast<std::uint64_t>(size)),
        rows_(std::max(least_side, static_cast<std::uint64_t>(std::sqrt(static_cast<double>(size))))),
        columns_(std::max(least_side, size_ / rows_ + (size_ % rows_ != 0))) {
    const auto key = mix(mix(seed, 3), static_cast<std::uint64_t>(epoch));
    for (std::size_t i = 0; i < keys_.size(); ++i) keys_[i] = mix(key, i);
  }

  /// The number at this place in the order, from 0 to below size.
  std::int64_t operator[](std::int64_t place) const {
    auto number = static_cast<std::uint64_t>(place);
    do {
      number = encipher(number);
    } while (number >= size_);
    return static_cast<std::int64_t>(number);
  }

 private:
  // For small sizes, square-root sides would give too few orders.
  static constexpr std::uint64_t least_side = 16;
  // The differences of adjacent numbers aren't uniform after 4 rounds; after 6 they are.
  static constexpr std::size_t rounds = 8;

  std::uint64_t encipher(std::uint64_t number) const {
    auto row = number / columns_, column = number % columns_;
    for (std::size_t i = 0; i < rounds; i += 2) {
      row = sum(row, below(rows_, mix(keys_[i], column)), rows_);
      column = sum(column, below(columns_, mix(keys_[i + 1], row)), columns_);
    }
    return row * columns_ + column;
  }
  /// A number below `side`, which has at most 32 bits.
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
