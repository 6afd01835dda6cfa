#include "etude/reflect/json_parser.hpp"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <string_view>

#include "common/growth.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"

namespace reflect_json_parser_test {

using Numbers = std::map<std::string, int>;

Numbers numbers(int n) {
  Numbers result;
  for (int i = 0; i < n; ++i) result.emplace("name." + std::to_string(i), i);
  return result;
}

TEST_CASE("JSON is parsed as nlohmann's own parser does, members in their order") {
  for (const auto* text :
       {R"({"b": 1, "a": [true, false, null, {}, [], -1, 18446744073709551615, 0.5, "é\n"], "": {"c": {}}})",
        R"({"a": 1, "b": 2, "a": [3], "c": 4, "b": {"b": 5, "b": 6}, "a": 7})", "[]", "null", "\"x\"", "-0.0",
        R"([[{"a": [{"b": 1}, {"b": 2}]}, 1], {"c": [[]]}])"}) {
    CAPTURE(text);
    CHECK(etude::parse_json(text).dump() == nlohmann::ordered_json::parse(text).dump());
  }
  CHECK(etude::parse_json(R"({"a": 1, "b": 2, "a": 3})").dump() == R"({"a":3,"b":2})");
}

TEST_CASE("only the part of a text that is in the view is parsed") {
  CHECK(etude::parse_json(std::string_view("[1, 2]]", 6)).dump() == "[1,2]");
  CHECK(etude::parse_json(std::string_view("[NaN, 2]]", 8)).dump() == R"(["NaN",2])");
}

TEST_CASE("an error quotes only the beginning of a long text") {
  const std::string digits(100000, '9'), letters(100000, 'x');
  for (const auto& text : {"[" + digits, "[1e" + digits, "{\"" + letters, "[\"" + letters + "\n"}) {
    std::string fault;
    try {
      etude::parse_json(text);
    } catch (const etude::ArgumentError& error) {
      fault = error.what();
    }
    CAPTURE(fault.size());
    CHECK(fault.starts_with("not JSON: "));
    CHECK(fault.size() < 300);
  }
}

TEST_CASE("writing and reading an object with many names takes linear time") {
  CHECK(etude::from_json_text<Numbers>(etude::to_json_text(numbers(1000))) == numbers(1000));
  // With quadratic time, 50,000 took ten seconds.
  CHECK(toy::growth(20'000, [](int n) {
          CHECK(etude::from_json_text<Numbers>(etude::to_json_text(numbers(n))).size() ==
                static_cast<std::size_t>(n));
        }) < 3.5);
}

TEST_CASE("reading an object that repeats one name takes linear time") {
  const auto growth = toy::growth(20'000, [](int n) {
    std::string text = "{";
    for (int i = 0; i < n; ++i) text += "\"a\":1,";
    CHECK(etude::parse_json(text + "\"a\":2}").dump() == "{\"a\":2}");
  });
  CHECK(growth < 3.5);
}

}  // namespace reflect_json_parser_test
