#include "etude/base/counting.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace base_counting_test {

constexpr auto largest = std::numeric_limits<std::int64_t>::max();

TEST_CASE("groups are counted for any numbers") {
  using etude::detail::groups_of;
  CHECK(groups_of(0, 4) == 0);
  CHECK(groups_of(1, 4) == 1);
  CHECK(groups_of(8, 4) == 2);
  CHECK(groups_of(9, 4) == 3);
  CHECK(groups_of(largest, largest) == 1);
  CHECK(groups_of(largest - 1, largest) == 1);
  CHECK(groups_of(largest, 1) == largest);
  CHECK(groups_of(largest, 2) == std::int64_t{1} << 62);
}

/// share = numerator / denominator
template <class Check>
void for_each_share(Check check) {
  for (const std::int64_t denominator : {2, 3, 7, 10, 22, 100, 1000, 1024})
    for (std::int64_t numerator = 0; numerator <= 3 * denominator; numerator += denominator > 100 ? 7 : 1)
      check(numerator, denominator, static_cast<double>(numerator) / static_cast<double>(denominator));
}

TEST_CASE("a share of a total is rounded as the exact fraction is, for every total") {
  using etude::detail::share_rounded_down, etude::detail::share_rounded_up;
  std::int64_t wrong = 0, of_products = 0;
  for_each_share([&](std::int64_t numerator, std::int64_t denominator, double share) {
    for (std::int64_t total = 0; total <= 3000; ++total) {
      const auto product = numerator * total, down = product / denominator,
                 up = down + (product % denominator > 0);
      const auto all = static_cast<double>(total);
      wrong += share_rounded_down(share, all) != static_cast<double>(down);
      wrong += share_rounded_up(share, all) != static_cast<double>(up);
      of_products += std::floor(share * all) != static_cast<double>(down);
      of_products += std::ceil(share * all) != static_cast<double>(up);
    }
  });
  CHECK(wrong == 0);
  CHECK(of_products > 1000);  // products of doubles would be wrong
  CHECK(share_rounded_up(0.07, 100) == 7);
  CHECK(share_rounded_up(0.1, 30) == 3);
  CHECK(share_rounded_down(0.29, 100) == 29);
  CHECK(share_rounded_up(0.07, 1e15) == 7e13);
  CHECK(share_rounded_down(0.07, 1e15) == 7e13);
  CHECK(share_rounded_up(0.07, 1e15 + 1) == 7e13 + 1);
  CHECK(share_rounded_down(0.07, 1e15 - 1) == 7e13 - 1);
  CHECK(share_rounded_up(1e300, 1e15) > 1e300);
  CHECK(std::isinf(share_rounded_down(std::numeric_limits<double>::infinity(), 10)));
}

TEST_CASE("the part of a share that a position is in") {
  // The index of the cycle that step s of n is in, if there are 22 cycles: cycle 16 begins at s = 16 n / 22.
  for (std::int64_t total = 1; total <= 1100; ++total)
    for (std::int64_t step = 0; step < total; ++step)
      REQUIRE(etude::detail::share_rounded_down(22, static_cast<double>(step), static_cast<double>(total)) ==
              static_cast<double>(22 * step / total));
}

TEST_CASE("an epoch that is computed reaches the intervals that the exact one reaches") {
  std::int64_t wrong = 0;
  for (const std::int64_t denominator : {2, 3, 10, 100})
    for (std::int64_t numerator = 1; numerator <= denominator; ++numerator) {
      const auto interval = static_cast<double>(numerator) / static_cast<double>(denominator);
      for (const std::int64_t steps : {1, 3, 7, 10, 30, 997, 1000})
        for (std::int64_t step = 0; step <= 3 * steps; ++step) {
          const auto epoch = static_cast<double>(step / steps) +
                             static_cast<double>(step % steps) / static_cast<double>(steps);
          wrong += etude::detail::intervals_in(epoch, interval) !=
                   static_cast<double>(step * denominator / (steps * numerator));
        }
    }
  CHECK(wrong == 0);
}

TEST_CASE("counting continues from any number in a file, without overflow") {
  const auto after = [](std::int64_t count) {
    etude::detail::count_up(count);
    return count;
  };
  CHECK(after(0) == 1);
  CHECK(after(41) == 42);
  CHECK(after(-1) == 1);
  CHECK(after(std::numeric_limits<std::int64_t>::min()) == 1);
  CHECK(after(largest - 1) == largest);
  CHECK(after(largest) == largest);
}

}  // namespace base_counting_test
