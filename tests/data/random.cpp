#include "etude/data/random.hpp"

#include <doctest/doctest.h>

#include <array>
#include <set>

namespace data_random_test {

using Order = std::vector<std::int64_t>;

TEST_CASE("a seed and an epoch give the same order everywhere and forever") {
  // Computed in Python from the definitions of SplitMix64, MT19937-64 and Fisher-Yates.
  CHECK(etude::detail::permutation(8, 42, 0) == Order{7, 1, 4, 5, 2, 3, 0, 6});
  CHECK(etude::detail::permutation(8, 42, 1) == Order{1, 6, 4, 7, 5, 3, 0, 2});
  CHECK(etude::detail::permutation(0, 42, 0).empty());
  CHECK(etude::detail::permutation(1, 42, 0) == Order{0});
}

TEST_CASE("all orders are about equally likely") {
  std::array<int, 6> counts{};
  for (std::int64_t epoch = 0; epoch < 6000; ++epoch) {
    const auto order = etude::detail::permutation(3, 7, epoch);
    ++counts[static_cast<std::size_t>(order[0] * 2 + (order[1] > order[2]))];
  }
  // 1,000 of each are expected, with a standard deviation of 29.
  for (const int count : counts) CHECK(std::abs(count - 1000) < 150);
}

TEST_CASE("nearby seeds and epochs don't collide") {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (std::uint64_t epoch = 0; epoch < 100; ++epoch)
      seeds.insert(etude::detail::mix(etude::detail::mix(seed, 0), epoch));
  }
  CHECK(seeds.size() == 10000);
}

}  // namespace data_random_test
