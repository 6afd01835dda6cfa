#include "etude/base/mix.hpp"

#include <doctest/doctest.h>

namespace base_mix_test {

TEST_CASE("the salts give SplitMix64's stream of the value") {
  using etude::detail::mix;
  // The reference implementation's first three numbers with the seed 0 (Vigna,
  // prng.di.unimi.it/splitmix64.c).
  CHECK(mix(0) == 0xe220a8397b1dcdaf);
  CHECK(mix(0, 1) == 0x6e789e6aa1b965f4);
  CHECK(mix(0, 2) == 0x06c45d188009454f);
}

}  // namespace base_mix_test
