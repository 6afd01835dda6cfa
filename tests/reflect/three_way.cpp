#include "etude/reflect/three_way.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace reflect_three_way_test {

using Json = nlohmann::ordered_json;
using Lines = std::vector<std::string>;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

Json merge(const Json& given_then, const Json& changed_then, const Json& given_now, Lines& differences,
           const char* prefix = "") {
  return etude::three_way(given_then, changed_then, given_now, differences, prefix);
}

TEST_CASE("`changed` has the members that are new or have another value, in their order") {
  const Json given{{"a", 1}, {"b", 2}, {"c", "x"}}, now{{"d", 4}, {"c", "y"}, {"b", 2}, {"a", 1.0}};
  CHECK(etude::changed(given, now).dump() == R"({"d":4,"c":"y"})");
  CHECK(etude::changed(given, given) == Json::object());
}

TEST_CASE("a value that is given again continues from what the run changed it to") {
  Lines differences;
  const Json merged =
      merge({{"lr", 0.1}, {"patience", 3}}, {{"lr", 0.05}}, {{"lr", 0.1}, {"patience", 3}}, differences);
  CHECK(merged.dump() == R"({"lr":0.05,"patience":3})");
  CHECK(differences.empty());
}

TEST_CASE("a value that is given differently wins over the run's, and is reported") {
  Lines differences;
  const Json merged = merge({{"learning_rate", 0.001}, {"patience", 3}}, {{"learning_rate", 0.0005}},
                            {{"learning_rate", 0.002}, {"patience", 3}}, differences);
  CHECK(merged.dump() == R"({"learning_rate":0.002,"patience":3})");
  CHECK(differences == Lines{"learning_rate: 0.001 -> 0.002"});
  // The value given now equals the run's changed value: it stays, but differs from the value given first.
  differences = {"earlier"};
  CHECK(merge({{"a", 1}}, {{"a", 2}}, {{"a", 2}}, differences, "EarlyStoppingCallback").at("a") == 2);
  CHECK(differences == Lines{"earlier", "EarlyStoppingCallback.a: 1 -> 2"});
}

TEST_CASE("members that another version doesn't have count as unchanged") {
  Lines differences;
  CHECK(merge({{"old", 1}}, {{"old", 2}}, {{"fresh", 7}}, differences).dump() == R"({"fresh":7})");
  CHECK(merge(Json::object(), {{"a", 2}}, {{"a", 1}}, differences).dump() == R"({"a":2})");
  CHECK(merge(nullptr, nullptr, {{"a", 1}}, differences).dump() == R"({"a":1})");
  CHECK(merge(Json::array({1}), "text", {{"a", 1}}, differences).dump() == R"({"a":1})");
  CHECK(merge({{"a", 1}}, {{"a", 2}}, nullptr, differences) == Json::object());
  CHECK(differences.empty());
}

TEST_CASE("NaN equals NaN, in numbers and in words, and an infinity its word") {
  CHECK(etude::changed({{"a", not_a_number}, {"b", {1, not_a_number}}},
                       {{"a", not_a_number}, {"b", {1, not_a_number}}}) == Json::object());
  CHECK(etude::changed({{"a", "NaN"}, {"b", infinity}}, {{"a", not_a_number}, {"b", "Infinity"}}) ==
        Json::object());
  CHECK(etude::changed({{"a", not_a_number}, {"b", infinity}}, {{"a", 1.0}, {"b", -infinity}}).size() == 2);
  Lines differences;
  CHECK(merge({{"best", not_a_number}}, {{"best", 0.5}}, {{"best", not_a_number}}, differences).at("best") ==
        0.5);
  CHECK(differences.empty());
  merge({{"best", not_a_number}}, Json::object(), {{"best", infinity}}, differences);
  CHECK(differences == Lines{R"(best: "NaN" -> "Infinity")"});
}

TEST_CASE("members are compared as a whole, ignoring the order in an object") {
  const Json a{{"map", {{"x", 1}, {"y", 2}}}}, b{{"map", {{"y", 2}, {"x", 1}}}};
  CHECK(etude::changed(a, b) == Json::object());
  Lines differences;
  // A member of `changed_then` replaces the whole member, including parts that it lacks.
  CHECK(merge(a, {{"map", {{"z", 3}}}}, b, differences).dump() == R"({"map":{"z":3}})");
  CHECK(differences.empty());
}

TEST_CASE("long values are shortened, without cutting a character") {
  Lines differences;
  merge({{"text", std::string(55, 'x') + "\xC3\xA4\xC3\xA4\xC3\xA4"}}, {}, {{"text", "\xFF"}}, differences);
  CHECK(differences == Lines{"text: \"" + std::string(55, 'x') + "... -> \"\xEF\xBF\xBD\""});
}

}  // namespace reflect_three_way_test
