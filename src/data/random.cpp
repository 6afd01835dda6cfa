#include "etude/data/random.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <cstddef>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "etude/base/interrupt.hpp"

namespace etude::inline v0 {
namespace detail {

std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::mt19937_64 generator(mix(mix(seed, 0), static_cast<std::uint64_t>(epoch)));
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  constexpr std::size_t some = std::size_t{1} << 20;
  for (std::size_t left = order.size(); left > 1; --left) {
    if (left % some == 0) interruption_point();
    std::swap(order[left - 1], order[generator() % left]);
  }
  return order;
}

namespace {

struct DataGenerator {
  at::Generator generator = at::detail::createCPUGenerator();
  // Seeding fills hundreds of words, so it waits for the first use; most datasets draw nothing.
  std::optional<std::uint64_t> seed = {};
};

DataGenerator& this_threads_generator() {
  thread_local DataGenerator generator;
  return generator;
}

}  // namespace

void seed_data_generator(std::uint64_t seed) { this_threads_generator().seed = seed; }

at::Generator& example_generator(std::uint64_t seed, std::int64_t index) {
  thread_local at::Generator generator = at::detail::createCPUGenerator();
  generator.set_current_seed(mix(seed, static_cast<std::uint64_t>(index)));
  return generator;
}

}  // namespace detail

at::Generator& data_generator() {
  auto& own = detail::this_threads_generator();
  if (own.seed) own.generator.set_current_seed(*std::exchange(own.seed, {}));
  return own.generator;
}

}  // namespace etude::inline v0
