#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace etude {
namespace detail {

/// SplitMix64's finaliser (Steele, Lea, Flood 2014) over `value` and `salt`: near values give unrelated
/// seeds.
constexpr std::uint64_t mix(std::uint64_t value, std::uint64_t salt) {
  std::uint64_t z = value + 0x9e3779b97f4a7c15 * (salt + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The numbers below `size` in an order that (seed, epoch) decide, the same on every machine and with every
/// LibTorch. It touches no other generator. Fisher-Yates; the modulo's bias is below size / 2^64.
inline std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::mt19937_64 generator(mix(mix(seed, 0), static_cast<std::uint64_t>(epoch)));
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[generator() % left]);
  return order;
}

struct DataGenerator {
  at::Generator generator = at::detail::createCPUGenerator();
  // Set at the first use: that fills hundreds of words, and most datasets draw nothing.
  std::optional<std::uint64_t> seed = {};
};

inline DataGenerator& this_threads_generator() {
  thread_local DataGenerator generator;
  return generator;
}

inline void seed_data_generator(std::uint64_t seed) { this_threads_generator().seed = seed; }

}  // namespace detail

/// This thread's generator for what a dataset or a collator draws (augmentation). A DataLoader seeds it
/// before each batch from (seed, epoch, batch), so what is drawn from it does not depend on the number of
/// workers, nor on where training was resumed. LibTorch's default generator is shared by all threads and
/// promises none of this.
inline at::Generator& data_generator() {
  auto& own = detail::this_threads_generator();
  if (own.seed) own.generator.set_current_seed(*std::exchange(own.seed, {}));
  return own.generator;
}

}  // namespace etude
