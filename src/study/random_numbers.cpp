#include "etude/study/random_numbers.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "etude/base/mix.hpp"

namespace etude::inline v0::detail {

std::uint64_t stream_seed(std::uint64_t seed, std::int64_t number, std::string_view name) {
  auto bits = mix(mix(seed) ^ static_cast<std::uint64_t>(number));
  for (const char each : name) bits = mix(bits ^ static_cast<unsigned char>(each));
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
