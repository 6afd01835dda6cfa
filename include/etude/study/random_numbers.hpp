#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace etude::inline v0 {

/// Random numbers that are the same with each standard library.
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }

  /// Uniform in [0, 1), with 53 bits.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  /// An index below `count`.
  std::size_t index(std::size_t count) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }

  /// An index, with the probabilities `weights`, whose sum is 1.
  std::size_t index(const std::vector<double>& weights) {
    double left = uniform();
    for (std::size_t i = 0; i + 1 < weights.size(); ++i)
      if ((left -= weights[i]) < 0) return i;
    return weights.size() - 1;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace etude::inline v0
