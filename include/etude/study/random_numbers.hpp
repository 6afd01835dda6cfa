#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

namespace etude::inline v0 {
namespace detail {

/// Derives the seed of one stream from the study's seed, a trial's number and a hyperparameter's name.
std::uint64_t stream_seed(std::uint64_t seed, std::int64_t number, std::string_view name = {});

}  // namespace detail

/// A random number generator whose results are the same with every standard library.
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

  /// An index drawn with the probabilities `weights`, which sum to 1.
  std::size_t index(const std::vector<double>& weights);

 private:
  std::mt19937_64 engine_;
};

}  // namespace etude::inline v0
