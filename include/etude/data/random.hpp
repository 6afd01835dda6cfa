#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <vector>

namespace etude::inline v0 {
namespace detail {

/// SplitMix64's finalizer (Steele, Lea, Flood 2014) over `value` and `salt`: nearby values give unrelated
/// seeds.
constexpr std::uint64_t mix(std::uint64_t value, std::uint64_t salt) {
  std::uint64_t z = value + 0x9e3779b97f4a7c15 * (salt + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The numbers below `size` in an order determined by (seed, epoch), the same on every machine and with every
/// LibTorch. Uses no other generator and may be interrupted. Fisher-Yates; the modulo's bias is below size /
/// 2^64.
std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

void seed_data_generator(std::uint64_t seed);

/// This thread's generator, seeded from (seed, index) in each call.
at::Generator& example_generator(std::uint64_t seed, std::int64_t index);

}  // namespace detail

/// This thread's generator for random numbers of a dataset or a collator (augmentation). A DataLoader seeds
/// it before each batch from (seed, epoch, batch), so the numbers depend neither on the number of workers nor
/// on where training was resumed. They do depend on the batch size; those of the generator passed to a
/// dataset's `get(index, torch::Generator&)` don't. LibTorch's default generator is shared by all threads and
/// guarantees none of this.
at::Generator& data_generator();

}  // namespace etude::inline v0
