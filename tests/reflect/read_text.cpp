#include "etude/reflect/read_text.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/json.hpp"

namespace reflect_read_text_test {

using etude::detail::read_bool;
using etude::detail::read_text;

ETUDE_ENUM(Shape, round, square);

struct Values {
  ETUDE_STRUCT(Values, (bool, on, "", false), (std::int64_t, count, "", 0), (double, rate, "", 0.0),
               (Shape, shape, "", Shape::round), (std::optional<double>, limit, "", 1.0),
               (std::string, name, "", ""), (std::optional<std::string>, label, "", "x"));

  friend bool operator==(const Values&, const Values&) = default;
};

template <class T>
std::optional<T> read(std::string_view text) {
  T value{};
  return read_text(text, value) ? std::optional(value) : std::nullopt;
}

/// `values` as flags of a command line.
Values from_words(const nlohmann::ordered_json& values) {
  std::vector<std::string> words;
  for (const auto& [name, value] : values.items())
    words.push_back("--" + name + "=" + value.get<std::string>());
  return etude::parse_arguments<Values>(words);
}

TEST_CASE("a bool may be any of the usual words, in any case") {
  for (const char* yes : {"true", "True", "TRUE", "yes", "Y", "on", "t", "1"}) CHECK(read_bool(yes) == true);
  for (const char* no : {"false", "False", "NO", "n", "off", "f", "0"}) CHECK(read_bool(no) == false);
  for (const char* neither : {"", "2", "maybe", "tru", " true", "none"}) CHECK(!read_bool(neither));
}

TEST_CASE("numbers are read completely, and integers exactly") {
  CHECK(read<std::int64_t>("+5") == 5);
  CHECK(read<std::int64_t>("1e6") == 1'000'000);
  CHECK(read<std::int64_t>("9223372036854775807") == INT64_MAX);
  CHECK(read<std::uint64_t>("18446744073709551615") == UINT64_MAX);
  for (const char* wrong : {"1.5", "", "5 ", "1e30", "nan", "inf", "0x10", "+-5", "++5"})
    CHECK(!read<std::int64_t>(wrong));
  CHECK(!read<std::uint64_t>("-1"));
  CHECK(!read<std::int8_t>("128"));
  CHECK(read<double>("1e-3") == 0.001);
  CHECK(std::isnan(read<double>("NaN").value_or(0)));
  CHECK(read<double>("-Infinity") == -INFINITY);
  CHECK(!read<double>("1e400"));
  CHECK(!read<double>("+-5"));
  CHECK(!read<float>("1e39"));
}

TEST_CASE("a value is unchanged if reading fails") {
  double rate = 3;
  CHECK_FALSE(read_text("fast", rate));
  CHECK(rate == 3);
  Shape shape = Shape::square;
  CHECK_FALSE(read_text("Round", shape));
  CHECK(shape == Shape::square);
}

TEST_CASE("the same texts mean the same on a command line and in JSON") {
  const nlohmann::ordered_json texts{{"on", "Yes"},       {"count", "1e3"},  {"rate", "2.5e-3"},
                                     {"shape", "square"}, {"limit", "None"}, {"name", "5"}};
  const Values expected{
      .on = true, .count = 1000, .rate = 0.0025, .shape = Shape::square, .limit = {}, .name = "5"};
  CHECK(from_words(texts) == expected);
  CHECK(etude::from_json_value<Values>(texts) == expected);
}

TEST_CASE("JSON's own numbers, booleans and null mean the same as their text") {
  CHECK(etude::from_json_text<Values>(R"({"on": 1, "count": 1e3, "limit": null})") ==
        Values{.on = true, .count = 1000, .limit = {}});
  CHECK(etude::from_json_text<Values>(R"({"on": 0})") == Values{});
  CHECK_THROWS_WITH_AS(etude::from_json_text<Values>(R"({"on": 2})"), "on is 2: must be true or false",
                       etude::ArgumentError);
}

TEST_CASE("a JSON string stays as it is for a string field, and `none` is only special on command lines") {
  CHECK(etude::from_json_text<Values>(R"({"label": "none"})").label == "none");
  CHECK(from_words({{"label", "none"}}).label == std::nullopt);
}

}  // namespace reflect_read_text_test
