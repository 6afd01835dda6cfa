#include "etude/base/counting.hpp"

#include <doctest/doctest.h>

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
