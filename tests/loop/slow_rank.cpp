#include "etude/loop/slow_rank.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

namespace loop_slow_rank_test {

TEST_CASE("a process is slow once the others have waited for it in three windows in a row") {
  etude::SlowRank ranks;
  CHECK_FALSE(ranks.add({5, 0, 9}, 10));
  CHECK_FALSE(ranks.add({5, 0, 9}, 10));
  const auto slow = ranks.add({4, 1, 9}, 10);
  REQUIRE(slow);
  CHECK(slow->rank == 1);
  CHECK(slow->share == doctest::Approx(0.3));
  CHECK_FALSE(ranks.add({4, 1, 9}, 10));  // it is known by now
}

TEST_CASE("processes that wait for each other by turns aren't slow") {
  etude::SlowRank ranks;
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(ranks.add({0, 4}, 10));
    CHECK_FALSE(ranks.add({0, 4}, 10));
    CHECK_FALSE(ranks.add({4, 0}, 10));
  }
}

TEST_CASE("a window in which the others wait for at most a fifth of the time begins the count anew") {
  etude::SlowRank ranks;
  for (int i = 0; i < 10; ++i) {
    CHECK_FALSE(ranks.add({0, 4}, 10));
    CHECK_FALSE(ranks.add({0, 4}, 10));
    CHECK_FALSE(ranks.add({0, 2}, 10));
  }
}

TEST_CASE("another process that becomes slow is found, too") {
  etude::SlowRank ranks;
  for (const std::size_t slow : {0U, 1U, 0U}) {
    const std::vector<double> waits{slow == 0 ? 0.0 : 4.0, slow == 0 ? 4.0 : 0.0};
    CHECK_FALSE(ranks.add(waits, 10));
    CHECK_FALSE(ranks.add(waits, 10));
    const auto found = ranks.add(waits, 10);
    REQUIRE(found);
    CHECK(found->rank == slow);
  }
}

}  // namespace loop_slow_rank_test
