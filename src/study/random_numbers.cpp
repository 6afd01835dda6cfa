#include "etude/study/random_numbers.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

std::uint64_t stream_seed(std::uint64_t seed, std::int64_t number, std::string_view name) {
  const auto mixed = [](std::uint64_t bits) {
    bits += 0x9E3779B97F4A7C15;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB;
    return bits ^ (bits >> 31);
  };
  auto bits = mixed(mixed(seed) ^ static_cast<std::uint64_t>(number));
  for (const char each : name) bits = mixed(bits ^ static_cast<unsigned char>(each));
  return bits;
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

std::size_t RandomNumbers::index(const std::vector<double>& weights) {
  double left = uniform();
  for (std::size_t i = 0; i + 1 < weights.size(); ++i)
    if ((left -= weights[i]) < 0) return i;
  return weights.size() - 1;
}

}  // namespace etude::inline v0
