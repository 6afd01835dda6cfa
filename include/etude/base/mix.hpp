#pragma once

#include <cstdint>

namespace etude::inline v0::detail {

/// SplitMix64's finalizer (Steele, Lea, Flood 2014) over `value` and `salt`: each bit of the result depends
/// on all of their bits, so nearby values give unrelated seeds.
constexpr std::uint64_t mix(std::uint64_t value, std::uint64_t salt = 0) {
  std::uint64_t z = value + 0x9e3779b97f4a7c15 * (salt + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace etude::inline v0::detail
