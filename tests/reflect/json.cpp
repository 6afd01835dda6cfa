#include "etude/reflect/json.hpp"
#include "etude/base/error.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <boost/hana/define_struct.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/fault_of.hpp"

namespace reflect_json_test {

using etude::from_json_text;
using etude::to_json_text;
using etude::to_json_value;
using nlohmann::json;

constexpr auto nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr auto infinity = std::numeric_limits<double>::infinity();

ETUDE_ENUM(Colour, red, green);

struct Inner {
  ETUDE_STRUCT(Inner, (double, rate, "", 0.5), (std::optional<int>, limit, ""));
  friend bool operator==(const Inner&, const Inner&) = default;
};

using Ratings = std::map<std::string, float>;

struct All {
  ETUDE_STRUCT(All, (bool, on, "", true), (std::int8_t, tiny, "", -3), (std::uint64_t, big, "", 1),
               (float, single, "", 0.5f), (double, number, "", 0.25), (std::string, text, "", "a \"b\" ü\n"),
               (Colour, colour, "", Colour::green), (std::optional<std::string>, maybe, ""),
               (std::vector<int>, list, "", {1, 2}), (std::vector<bool>, bits, "", {true, false}),
               (Ratings, ratings, "", {{"x", 1.5f}}), (Inner, inner, ""),
               (std::vector<Inner>, inners, "", {Inner{}}),
               (json, anything, "", {{"k", {1, "two", nullptr}}}));
  friend bool operator==(const All&, const All&) = default;
};

struct Point {
  BOOST_HANA_DEFINE_STRUCT(Point, (int, x), (std::vector<double>, ys));
};

template <class T>
std::string faults_of(const std::string& text) {
  return toy::fault_of<etude::ArgumentError>([&] { (void)from_json_text<T>(text); });
}

struct OneByte {
  ETUDE_STRUCT(OneByte, (std::uint8_t, v, ""));
};
struct OneLong {
  ETUDE_STRUCT(OneLong, (std::int64_t, v, ""));
};
struct OneUnsigned {
  ETUDE_STRUCT(OneUnsigned, (std::uint64_t, v, ""));
};
struct OneFloat {
  ETUDE_STRUCT(OneFloat, (float, v, ""));
};

TEST_CASE("Python's bare words for numbers are read, and words in strings are left alone") {
  const auto parsed = etude::parse_json(
      R"({"loss": NaN, "up": Infinity, "down": [-Infinity, 1], "text": "NaN \" Infinity", "NaN": "\\"})");
  CHECK(parsed.dump() ==
        R"({"loss":"NaN","up":"Infinity","down":["-Infinity",1],"text":"NaN \" Infinity","NaN":"\\"})");
  CHECK_THROWS_AS(etude::parse_json("{\"a\": NaNa}"), etude::ArgumentError);
  CHECK_THROWS_AS(etude::parse_json("\"NaN"), etude::ArgumentError);
  CHECK_THROWS_AS(etude::parse_json("NaN \\"), etude::ArgumentError);
  CHECK_THROWS_AS(etude::parse_json(std::string_view("{}\0{", 4)), etude::ArgumentError);
}

TEST_CASE("every kind of member has its JSON form, in the order of definition") {
  CHECK(
      to_json_value(All()).dump() ==
      R"({"on":true,"tiny":-3,"big":1,"single":0.5,"number":0.25,"text":"a \"b\" ü\n","colour":"green","maybe":null,)"
      R"("list":[1,2],"bits":[true,false],"ratings":{"x":1.5},"inner":{"rate":0.5,"limit":null},)"
      R"("inners":[{"rate":0.5,"limit":null}],"anything":{"k":[1,"two",null]}})");
}

TEST_CASE("every kind of member round-trips") {
  All all{.on = false,
          .tiny = -128,
          .big = std::numeric_limits<std::uint64_t>::max(),
          .single = std::numeric_limits<float>::max(),
          .number = 0.1,
          .text = "",
          .colour = Colour::red,
          .maybe = "none",
          .list = {},
          .bits = {false},
          .ratings = {{"", -1.0f}},
          .inner = {.rate = 5e-324, .limit = 0},
          .inners = {{}, {.limit = 3}},
          .anything = json::parse("[[], {}, 1e300, \"NaN\"]")};
  CHECK(from_json_text<All>(to_json_text(all)) == all);
  CHECK(from_json_text<All>(to_json_text(all, etude::KeyOrder::sorted)) == all);
  CHECK(etude::from_json_value<All>(json(to_json_value(all))) == all);
}

TEST_CASE("text is indented by two, sorted if asked, and ends in a newline") {
  CHECK(to_json_text(Inner()) == "{\n  \"rate\": 0.5,\n  \"limit\": null\n}\n");
  CHECK(to_json_text(Inner(), etude::KeyOrder::sorted) == "{\n  \"limit\": null,\n  \"rate\": 0.5\n}\n");
}

TEST_CASE("non-finite numbers survive in valid JSON") {
  const std::vector<double> numbers{nan_value, infinity, -infinity, 1};
  const auto text = to_json_text(numbers);
  CHECK(json::parse(text) == json{"NaN", "Infinity", "-Infinity", 1.0});
  const auto read = from_json_text<std::vector<double>>(text);
  CHECK(std::isnan(read[0]));
  CHECK(read[1] == infinity);
  CHECK(read[2] == -infinity);
  CHECK(from_json_text<OneFloat>(R"({"v": "-Infinity"})").v == -std::numeric_limits<float>::infinity());
  CHECK(from_json_text<std::optional<double>>("\"Infinity\"") == infinity);
}

TEST_CASE("a JSON member spells non-finite numbers at any depth, and reads those directly in it") {
  CHECK(to_json_value(json{{"a", {1, nan_value}}, {"b", infinity}}).dump() ==
        R"({"a":[1,"NaN"],"b":"Infinity"})");
  CHECK(from_json_text<json>("\"Infinity\"") == json(infinity));
  CHECK(from_json_text<json>("[\"Infinity\"]") == json{"Infinity"});
  CHECK(from_json_text<json>("\"NaN!\"") == json("NaN!"));
}

TEST_CASE("missing keys keep their defaults, unknown ones are skipped and reported with their path") {
  std::vector<std::string> unknown{"from before"};
  const auto all =
      from_json_text<All>(R"({"x": 1, "inner": {"rate": 2, "y": {}}, "inners": [{}, {"z": 0}]})", &unknown);
  CHECK(all.inner.rate == 2);
  CHECK(all.list == std::vector{1, 2});
  CHECK(unknown == std::vector<std::string>{"inner.y", "inners[1].z", "x"});
  CHECK(from_json_text<All>("{}", &unknown) == All());
  CHECK(unknown.empty());
}

TEST_CASE("all faults are reported at once, each with its path, value and what is allowed") {
  CHECK(faults_of<All>(R"({"on": 2, "tiny": 200, "big": -1, "single": 1e39, "number": "fast", "text": null,
                           "colour": "gren", "maybe": 5, "list": [1, 1.5, "x"], "bits": 0, "ratings": {"a": true},
                           "inner": {"limit": 3000000000}, "inners": {}})") ==
        R"(on is 2: must be true or false
tiny is 200: must be a whole number from -128 to 127
big is -1: must be a whole number >= 0
single is 1e+39: must be a number
number is "fast": must be a number
text is null: must be a string
colour is "gren": must be one of red, green; did you mean 'green'?
maybe is 5: must be a string
list[1] is 1.5: must be a whole number from -2147483648 to 2147483647
list[2] is "x": must be a whole number from -2147483648 to 2147483647
bits is 0: must be a list, each true or false
ratings.a is true: must be a number
inner.limit is 3000000000: must be a whole number from -2147483648 to 2147483647
inners is {}: must be a list, each an object)");
  CHECK(faults_of<All>("[1]") == "the value is [1]: must be an object");
}

TEST_CASE("a long value is cut in the message") {
  const auto message = faults_of<OneLong>("{\"v\": \"" + std::string(1000, 'x') + "\"}");
  CHECK(message == "v is \"" + std::string(56, 'x') + "...: must be a whole number");
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "ü";
  // 57 bytes are the quote and 28 of these letters.
  CHECK(faults_of<OneLong>("{\"v\": \"" + umlauts + "\"}") ==
        "v is \"" + umlauts.substr(0, 56) + "...: must be a whole number");
  CHECK(faults_of<OneLong>("{\"v\": \"x" + umlauts + "\"}") ==
        "v is \"x" + umlauts.substr(0, 54) + "...: must be a whole number");
}

TEST_CASE("at most twenty faults are reported, and an invalid value is never used") {
  std::string list = "[1";
  for (int i = 0; i < 100; ++i) list += ",\"x\"";
  const auto text = faults_of<std::vector<std::optional<int>>>(list + "]");
  CHECK(std::count(text.begin(), text.end(), '\n') == 20);
  CHECK(text.starts_with("[1] is \"x\": must be"));
  CHECK(text.ends_with("\nand more"));
  etude::detail::JsonReader reader;
  std::vector<std::optional<int>> values;
  reader.read(etude::parse_json(list + "]"), values, "");
  CHECK(values == std::vector<std::optional<int>>([] {
          std::vector<std::optional<int>> expected(101);
          expected[0] = 1;
          return expected;
        }()));
}

TEST_CASE("whole numbers are never rounded, cut or wrapped") {
  CHECK(from_json_text<OneByte>(R"({"v": 255})").v == 255);
  CHECK(from_json_text<OneByte>(R"({"v": 25e1})").v == 250);
  CHECK(from_json_text<OneLong>(R"({"v": -9223372036854775808})").v ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(from_json_text<OneUnsigned>(R"({"v": 18446744073709551615})").v ==
        std::numeric_limits<std::uint64_t>::max());
  for (const auto wrong :
       {"256", "-1", "0.5", "1e300", "-1e300", "true", "\"x\"", "null", "[1]", "\"NaN\""}) {
    CAPTURE(wrong);
    CHECK(faults_of<OneByte>(std::string("{\"v\": ") + wrong + "}")
              .find(": must be a whole number from 0 to 255") != std::string::npos);
  }
  CHECK(faults_of<OneLong>(R"({"v": 9223372036854775808})") ==
        "v is 9223372036854775808: must be a whole number");
  CHECK(faults_of<OneLong>(R"({"v": 1e18})") == "v is 1e+18: must be a whole number");
}

TEST_CASE("invalid JSON is an ArgumentError") {
  for (const auto wrong : {"", "{", "{\"v\": 1,}", "{\"v\": nan}", "{\"v\": 1e999}", "{} {}", "\xff"}) {
    CAPTURE(wrong);
    CHECK(faults_of<OneLong>(wrong).starts_with("not JSON: "));
  }
}

TEST_CASE("JSON that is nested too deeply is refused before it can exhaust the stack") {
  CHECK(faults_of<json>(std::string(1000000, '[')) == "JSON is nested deeper than 100 levels");
  CHECK(from_json_text<json>(std::string(100, '[') + std::string(100, ']')).is_array());
}

TEST_CASE("text that is not UTF-8 can't be written") {
  CHECK_THROWS_AS(to_json_text(std::string("\xff")), etude::ArgumentError);
}

TEST_CASE("structs of Hana's own macros read and write JSON too") {
  const Point point{.x = 1, .ys = {0.5}};
  CHECK(to_json_value(point).dump() == R"({"x":1,"ys":[0.5]})");
  CHECK(from_json_text<Point>(R"({"ys": [3], "x": 2})").ys == std::vector{3.0});
  CHECK(faults_of<Point>(R"({"x": "a"})") ==
        "x is \"a\": must be a whole number from -2147483648 to 2147483647");
}

}  // namespace reflect_json_test
