#include "etude/base/faults.hpp"

#include <doctest/doctest.h>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace base_faults_test {

using etude::detail::Faults;

std::string thrown(const Faults& faults) {
  return toy::fault_of<etude::ArgumentError>([&] { faults.check(); });
}

TEST_CASE("all faults are thrown together, one per line, and none without any") {
  Faults faults;
  CHECK(thrown(faults) == "nothing was thrown");
  faults.require(true, "width", 3, "at most 4");
  faults.refuse(false, "fp16", "on the CPU");
  CHECK(thrown(faults) == "nothing was thrown");
  faults.add("the {}nd line has {}", 2, "braces {}");
  faults.require(false, "width", 5, "at most 4");
  faults.refuse(true, "fp16", "on the CPU");
  CHECK(thrown(faults) ==
        "the 2nd line has braces {}\nwidth is 5: must be at most 4\nfp16 is true: must be false on the CPU");
}

TEST_CASE("faults that were found elsewhere come first") {
  Faults faults({"one {}", "two"});
  faults.add("three");
  CHECK(faults.lines() == std::vector<std::string>{"one {}", "two", "three"});
}

}  // namespace base_faults_test
