#include "etude/base/number_text.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace base_number_text_test {

using etude::detail::duration_text;
using etude::detail::number_text;

TEST_CASE("whole numbers below a million are written in full, others with few digits") {
  CHECK(number_text(0) == "0");
  CHECK(number_text(-0.0) == "0");
  CHECK(number_text(999999) == "999999");
  CHECK(number_text(1234567) == "1.23457e+06");
  CHECK(number_text(0.123456789) == "0.123457");
  CHECK(number_text(0.123456789, 3) == "0.123");
  CHECK(number_text(std::numeric_limits<double>::infinity()) == "inf");
}

TEST_CASE("durations have the two units that matter") {
  CHECK(duration_text(0) == "0 ms");
  CHECK(duration_text(0.0001) == "< 1 ms");
  CHECK(duration_text(0.0354) == "35 ms");
  CHECK(duration_text(0.99951) == "1.0 s");
  CHECK(duration_text(1.23) == "1.2 s");
  CHECK(duration_text(59.94) == "59.9 s");
  CHECK(duration_text(59.96) == "1 min 00 s");
  CHECK(duration_text(245) == "4 min 05 s");
  CHECK(duration_text(3599.7) == "1 h 00 min");
  CHECK(duration_text(7980) == "2 h 13 min");
  CHECK(duration_text(273600) == "3 d 04 h");
  CHECK(duration_text(1e300) == "1.16e+295 d");
}

}  // namespace base_number_text_test
