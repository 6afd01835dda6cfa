#include "etude/reflect/read_text.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/command_line.hpp"
#include "etude/reflect/json.hpp"
#include "etude/reflect/key_values.hpp"

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

constexpr double inf = std::numeric_limits<double>::infinity(),
                 nan = std::numeric_limits<double>::quiet_NaN();
constexpr auto refused = std::nullopt;

/// Whether both are equal numbers of the same sign; NaN equals NaN.
bool same(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return !a && !b;
  return std::isnan(*a) ? std::isnan(*b) : *a == *b && std::signbit(*a) == std::signbit(*b);
}

struct FloatRow {
  std::string text;
  std::optional<double> theirs;  ///< `float(text)` of Python 3.11, which argparse calls for type=float
  std::optional<double> ours = theirs;
};

const std::vector<FloatRow> floats{{"1", 1},
                                   {"+1", 1},
                                   {"-1", -1},
                                   {" 1", 1},
                                   {"1 ", 1},
                                   {"\t1\n", 1},
                                   {"\v1\f\r", 1},
                                   {"+ 1", refused},
                                   {"+-1", refused},
                                   {"--1", refused},
                                   {"++1", refused},
                                   {"-+1", refused},
                                   {"", refused},
                                   {"  ", refused},
                                   {"+", refused},
                                   {".", refused},
                                   {"1.", 1},
                                   {"1.0", 1},
                                   {".5", 0.5},
                                   {"-.5", -0.5},
                                   {"+.5", 0.5},
                                   {"010", 10},
                                   {"00", 0},
                                   {"0", 0},
                                   {"-0", -0.0},
                                   {"+0", 0},
                                   {"-0.0", -0.0},
                                   {"1e3", 1000},
                                   {"1E3", 1000},
                                   {"1e+3", 1000},
                                   {"1e-3", 0.001},
                                   {"1.e3", 1000},
                                   {"1e", refused},
                                   {"e1", refused},
                                   {"1e+", refused},
                                   {"4.9e-324", 5e-324},
                                   {"3e-324", 5e-324},
                                   {"2e-324", 0},
                                   {"-2e-324", -0.0},
                                   {"1e-400", 0},
                                   {"-1e-400", -0.0},
                                   {"1e-2147483648", 0},
                                   {"1e-99999999999999999999", 0},
                                   {"0e99999999999999999999", 0},
                                   {"2.2250738585072011e-308", 2.225073858507201e-308},
                                   {"1.7976931348623157e308", 1.7976931348623157e308},
                                   {"9007199254740993", 9007199254740992.},
                                   {"inf", inf},
                                   {"-inf", -inf},
                                   {"+inf", inf},
                                   {"INF", inf},
                                   {"Infinity", inf},
                                   {"-infinity", -inf},
                                   {"infinit", refused},
                                   {"nan", nan},
                                   {"NaN", nan},
                                   {"-nan", nan},
                                   {"+nan", nan},
                                   {"nan(1)", refused},
                                   {"nan()", refused},
                                   {"1_000", 1000},
                                   {"1_0.5", 10.5},
                                   {"1e1_0", 1e10},
                                   {"1__0", refused},
                                   {"_1", refused},
                                   {"1_", refused},
                                   {"1_.5", refused},
                                   {"-_1", refused},
                                   {"0x10", refused},
                                   {"0x1p3", refused},
                                   {"0b1", refused},
                                   {"1,5", refused},
                                   {"1.2.3", refused},
                                   {"1 2", refused},
                                   {"1f", refused},
                                   {"1d3", refused},
                                   {"true", refused},
                                   // On purpose: a number that is too large is an error, not an infinity.
                                   {"1e400", inf, refused},
                                   {"-1e400", -inf, refused},
                                   {"1.7976931348623159e308", inf, refused},
                                   {"1e99999999999999999999", inf, refused},
                                   // On purpose: only ASCII digits and blanks.
                                   {"\u0663", 3, refused},
                                   {"\uff11", 1, refused},
                                   {"1\u00a0", 1, refused}};

TEST_CASE("a number is read as Python's float does, but for those too large") {
  for (const auto& row : floats) {
    CAPTURE(row.text);
    CHECK(same(read<double>(row.text), row.ours));
  }
}

struct WholeRow {
  std::string text;
  std::optional<std::int64_t> argparse;  ///< `int(text)` of Python 3.11, if it fits
  std::optional<std::int64_t> ours = argparse;
};

const std::vector<WholeRow> wholes{
    {"1", 1},
    {"+1", 1},
    {"-1", -1},
    {" 1 ", 1},
    {"\t1\n", 1},
    {"-0", 0},
    {"010", 10},
    {"1_000", 1000},
    {"1__0", refused},
    {"_1", refused},
    {"+-1", refused},
    {"+ 1", refused},
    {"", refused},
    {"0x10", refused},
    {"1 2", refused},
    {"true", refused},
    {"inf", refused},
    {"nan", refused},
    {"9223372036854775807", INT64_MAX},
    {"-9223372036854775808", INT64_MIN},
    {"9223372036854775808", refused},
    {"18446744073709551616", refused},
    {"3.5", refused},
    {"1e-3", refused},
    {"1e19", refused},
    {"1e400", refused},
    {"1e2147483648", refused},
    {"1e", refused},
    {".", refused},
    // On purpose: whole numbers in other forms, as pandas reads them, but exactly.
    {"3.0", refused, 3},
    {"3.", refused, 3},
    {"-0.0", refused, 0},
    {"1e3", refused, 1000},
    {"1E+3", refused, 1000},
    {"1.5e3", refused, 1500},
    {"1e18", refused, 1'000'000'000'000'000'000},
    {"9007199254740993.0", refused, 9007199254740993},
    {"9.007199254740993e15", refused, 9007199254740993},
    {"1000e-3", refused, 1},
    {"0.001e3", refused, 1},
    {"-9223372036854775808.0", refused, INT64_MIN},
    {"0e99999999999999999999", refused, 0}};

TEST_CASE("a whole number is read as Python's int does, and in the forms of other numbers, exactly") {
  for (const auto& row : wholes) {
    CAPTURE(row.text);
    CHECK(read<std::int64_t>(row.text) == row.ours);
  }
}

TEST_CASE(
    "a number that doesn't fit its type is refused, and one that is too small becomes a zero of its sign") {
  CHECK(!read<std::uint8_t>("300"));
  CHECK(!read<std::uint8_t>("3e2"));
  CHECK(read<std::uint8_t>("2.55e2") == 255);
  CHECK(read<std::int8_t>("-128") == -128);
  CHECK(!read<std::int8_t>("-129"));
  CHECK(!read<int>("2147483648"));
  CHECK(read<std::uint64_t>("-0") == 0U);
  CHECK(!read<std::uint64_t>("-1"));
  CHECK(read<std::uint64_t>("18446744073709551615.0") == UINT64_MAX);
  CHECK(!read<std::uint64_t>("18446744073709551616"));
  CHECK(!read<float>("3.4028236e38"));
  CHECK(read<float>("3.4028235e38") == std::numeric_limits<float>::max());
  CHECK(read<float>("1e-45") == std::numeric_limits<float>::denorm_min());
  CHECK(read<float>("1e-46") == 0);
  CHECK(std::signbit(read<float>("-1e-46").value_or(1)));
  CHECK(read<float>("inf") == std::numeric_limits<float>::infinity());
}

TEST_CASE("a number means the same on a command line, in a string of JSON and in name=value") {
  const auto from_line = [](const std::string& text) -> std::optional<double> {
    try {
      return etude::parse_arguments<Values>({"--rate=" + text}).rate;
    } catch (const etude::ArgumentError&) {
      return refused;
    }
  };
  const auto from_json = [](const nlohmann::ordered_json& json) -> std::optional<double> {
    try {
      return etude::from_json_value<Values>(json).rate;
    } catch (const etude::ArgumentError&) {
      return refused;
    }
  };
  for (const auto& row : floats) {
    CAPTURE(row.text);
    CHECK(same(from_line(row.text), row.ours));
    CHECK(same(from_json({{"rate", row.text}}), row.ours));
    if (row.text.find_first_of(",\n") == std::string::npos)
      CHECK(same(from_json(etude::parse_key_values("rate=" + row.text)), row.ours));
  }
  for (const auto& row : wholes) {
    CAPTURE(row.text);
    const auto parsed = [&](auto parse) -> std::optional<std::int64_t> {
      try {
        return parse().count;
      } catch (const etude::ArgumentError&) {
        return refused;
      }
    };
    CHECK(parsed([&] { return etude::parse_arguments<Values>({"--count=" + row.text}); }) == row.ours);
    CHECK(parsed([&] {
            return etude::from_json_value<Values>(nlohmann::ordered_json{{"count", row.text}});
          }) == row.ours);
  }
}

TEST_CASE("numbers are read independently of the locale") {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  std::setlocale(LC_NUMERIC, "de_DE.UTF-8");  // has no effect where it isn't installed
  CHECK(read<double>("0.5") == 0.5);
  CHECK(!read<double>("0,5"));
  std::setlocale(LC_NUMERIC, before.c_str());
}

TEST_CASE("numbers are read completely, and integers exactly") {
  CHECK(read<std::int64_t>("+5") == 5);
  CHECK(read<std::int64_t>("1e6") == 1'000'000);
  CHECK(read<std::int64_t>("9223372036854775807") == INT64_MAX);
  CHECK(read<std::uint64_t>("18446744073709551615") == UINT64_MAX);
  for (const char* wrong : {"1.5", "", "1e30", "nan", "inf", "0x10", "+-5", "++5"})
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
