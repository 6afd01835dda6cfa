#include "etude/base/progress_bar.hpp"

#include <doctest/doctest.h>

namespace base_progress_bar_test {

using etude::detail::RateWindow;

TEST_CASE("the rate is that of the last 15 seconds") {
  RateWindow window(0);
  CHECK(window.rate() == 0);
  window.add(1, 2);
  CHECK(window.rate() == doctest::Approx(2));
  for (int second = 2; second <= 10; ++second) window.add(second, 2 * second);
  for (int second = 11; second <= 25; ++second) window.add(second, 20 + 10 * (second - 10));
  CHECK(window.rate() == doctest::Approx(10));  // the first ten seconds no longer count
  window.add(26, 170);                          // the same count: no step was done
  CHECK(window.rate() == doctest::Approx(10));
}

TEST_CASE("slow steps are averaged over five") {
  RateWindow window(100);
  for (int i = 1; i <= 3; ++i) window.add(100 * i, 100 + i);
  CHECK(window.rate() == doctest::Approx(0.01));
  for (int i = 1; i <= 5; ++i) window.add(300 + 50 * i, 103 + i);
  CHECK(window.rate() == doctest::Approx(0.02));
}

}  // namespace base_progress_bar_test
