#include "etude/formats/csv_text.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace formats_csv_text_test {

using Texts = std::vector<std::string>;

TEST_CASE("a written CSV field is read back unchanged") {
  for (const std::string text : {"", "plain", "a,b", "\"", "say \"so\"", "two\nlines", "\r\n", ",", "\",\""})
    CHECK(etude::detail::csv_fields(etude::detail::csv_field(text) + ",x") == Texts{text, "x"});
}

TEST_CASE("a record is its fields with commas between") {
  CHECK(etude::detail::csv_record(Texts{}).empty());
  CHECK(etude::detail::csv_record(Texts{"1", "\"a,b\"", ""}) == "1,\"a,b\",");
}

TEST_CASE("a number in CSV has the shortest text, and NaN no sign") {
  CHECK(etude::detail::csv_number(0.1) == "0.1");
  CHECK(etude::detail::csv_number(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(etude::detail::csv_number(-std::numeric_limits<double>::infinity()) == "-inf");
}

TEST_CASE("records of CSV end outside quotes, with either line end, and an incomplete one is left out") {
  CHECK(etude::detail::csv_records("a,b\r\n\"1\n2\",3\nx") == Texts{"a,b", "\"1\n2\",3"});
  CHECK(etude::detail::csv_records("a\n\"1\n") == Texts{"a"});
}

TEST_CASE("raw records of CSV are the whole text, byte for byte") {
  const std::string_view text = "a,b\r\n\"1\n2\",3\nx";
  const auto records = etude::detail::csv_raw_records(text);
  CHECK(records == std::vector<std::string_view>{"a,b\r\n", "\"1\n2\",3\n", "x"});
}

}  // namespace formats_csv_text_test
