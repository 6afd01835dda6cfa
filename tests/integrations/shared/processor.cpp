#include "etude/integrations/shared/processor.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace integrations_shared_processor_test {

TEST_CASE("lines of /proc give the values of a name, ignoring blanks around it") {
  CHECK(etude::detail::values_in("Model: \t\t One: 2\nModel name: no\n\nModel\t:\nno colon\n", "Model") ==
        std::vector<std::string>{"One: 2", ""});
}

TEST_CASE("processors are read by name, and counted by socket") {
  const auto info = etude::detail::processor_info(
      "processor\t: 0\nmodel name\t: A Model: 3 GHz\nphysical id\t: 0\n\n"
      "processor\t: 1\nmodel name\t: A Model: 3 GHz\nphysical id\t: 1\n\n"
      "processor\t: 2\nmodel name\t: A Model: 3 GHz\nphysical id\t: 1\n");
  CHECK(info.model == "A Model: 3 GHz");
  CHECK(info.sockets == 2);
  const auto other = etude::detail::processor_info("processor\t: 0\nBogoMIPS\t: 50.00\n");
  CHECK(other.model.empty());
  CHECK(other.sockets == 1);
}

}  // namespace integrations_shared_processor_test
