#include "etude/study/distribution.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/json_parser.hpp"

namespace study_distribution_test {

using etude::Choices;
using etude::Distribution;
using etude::FloatRange;
using etude::IntRange;
using Json = nlohmann::ordered_json;

template <class Act>
std::string fault(Act act) {
  return toy::fault_of<etude::ArgumentError>(act);
}

TEST_CASE("values are numbers as Optuna stores them, and come back") {
  const Distribution choices = Choices{{"sgd", 2, true, nullptr}};
  const std::vector<Json> values{"sgd", 2, true, nullptr};
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(etude::to_number("c", choices, values[i]) == static_cast<double>(i));
    CHECK(etude::from_number(choices, static_cast<double>(i)) == values[i]);
  }
  CHECK(etude::to_number("f", FloatRange{0, 2}, 0.5) == 0.5);
  CHECK(etude::from_number(FloatRange{0, 2}, 0.5) == 0.5);
  CHECK(etude::to_number("i", IntRange{1, 9}, 4) == 4);
  CHECK(etude::from_number(IntRange{1, 9}, 4).is_number_integer());
}

TEST_CASE("numbers between steps are rounded, and those outside are brought to the end") {
  const FloatRange steps{.low = 1, .high = 2, .step = 0.25};
  CHECK(etude::from_number(steps, 1.3) == 1.25);
  CHECK(etude::from_number(steps, 9) == 2);
  const FloatRange uneven{.low = 0, .high = 1, .step = 0.3};
  CHECK(etude::from_number(uneven, 1) == 3 * 0.3);
  const FloatRange even{.low = 0, .high = 0.3, .step = 0.1};  // 0.3 / 0.1 is less than 3
  CHECK(etude::from_number(even, 0.3) == 0.3);
  const IntRange odd{.low = 1, .high = 8, .step = 2};
  CHECK(etude::from_number(odd, 4.2) == 5);
  CHECK(etude::from_number(odd, 8) == 7);
  CHECK(etude::from_number(odd, -3) == 1);
}

TEST_CASE("a range with one value is single") {
  CHECK(etude::is_single(FloatRange{2, 2}));
  CHECK(etude::is_single(FloatRange{.low = 0, .high = 0.4, .step = 0.5}));
  CHECK(etude::is_single(IntRange{.low = 1, .high = 2, .step = 2}));
  CHECK(etude::is_single(Choices{{"a"}}));
  CHECK_FALSE(etude::is_single(IntRange{1, 2}));
  CHECK_FALSE(etude::is_single(FloatRange{1, 2}));
}

TEST_CASE("values that don't fit and distributions that make no sense are errors with name and range") {
  CHECK(fault([] { etude::to_number("lr", FloatRange{0, 1}, 2); }) == "lr is 2: must be from 0 to 1");
  CHECK(fault([] { etude::to_number("n", IntRange{1, 4}, 2.5); }) == "n is 2.5: must be from 1 to 4");
  CHECK(fault([] { etude::to_number("n", IntRange{1, 4}, "2"); }) == "n is \"2\": must be from 1 to 4");
  CHECK(fault([] {
          etude::to_number("c", Choices{{"a", 1}}, "b");
        }) == "c is \"b\": must be one of \"a\", 1");
  const auto wrong = [](const Distribution& distribution) {
    return fault([&] { etude::check_distribution("x", distribution); });
  };
  CHECK(wrong(FloatRange{2, 1}) == "x is from 2 to 1: must be finite, and not end before it begins");
  CHECK(wrong(FloatRange{0, std::numeric_limits<double>::infinity()}) ==
        "x is from 0 to inf: must be finite, and not end before it begins");
  CHECK(wrong(FloatRange{.low = 0, .high = 1, .log = true}) ==
        "x is from 0 to 1: must be positive for a logarithmic range");
  CHECK(wrong(FloatRange{.low = 1, .high = 2, .log = true, .step = 0.1}) ==
        "x is from 1 to 2: must have no step if it is logarithmic");
  CHECK(wrong(FloatRange{.low = 1, .high = 2, .step = 0}) == "x is from 1 to 2: must have a positive step");
  CHECK(wrong(IntRange{.low = 1, .high = 2, .step = 0}) ==
        "x is from 1 to 2: must have a step of at least 1");
  CHECK(wrong(IntRange{.low = 1, .high = 2, .log = true, .step = 2}) ==
        "x is from 1 to 2: must have a step of 1 if it is logarithmic");
  CHECK(wrong(Choices{}) == "x is one of : must have at least one choice");
  CHECK(wrong(IntRange{.low = 1, .high = 8, .log = true}) == "nothing was thrown");
}

TEST_CASE("the JSON is Optuna's") {
  // optuna.distributions.distribution_to_json of Optuna 5.0
  const std::vector<std::pair<Distribution, std::string>> cases{
      {Choices{{"a", "b", "c"}},
       R"({"name": "CategoricalDistribution", "attributes": {"choices": ["a", "b", "c"]}})"},
      {FloatRange{-1, 3},
       R"({"name": "FloatDistribution", "attributes": {"step": null, "low": -1.0, "high": 3.0, "log": false}})"},
      {IntRange{.low = 1, .high = 9, .step = 2},
       R"({"name": "IntDistribution", "attributes": {"log": false, "step": 2, "low": 1, "high": 9}})"},
      {FloatRange{.low = 0.001, .high = 1, .log = true},
       R"({"name": "FloatDistribution", "attributes": {"step": null, "low": 0.001, "high": 1.0, "log": true}})"},
      {FloatRange{.low = 0, .high = 1, .step = 0.25},
       R"({"name": "FloatDistribution", "attributes": {"step": 0.25, "low": 0.0, "high": 1.0, "log": false}})"}};
  for (const auto& each : cases) {
    CAPTURE(each.second);
    const auto json = nlohmann::json::parse(each.second);
    CHECK(nlohmann::json::parse(etude::distribution_json(each.first).dump()) == json);
    CHECK(etude::distribution_of(etude::parse_json(each.second)) == each.first);
  }
  CHECK(
      fault([] {
        etude::distribution_of(Json{{"name", "Other"}, {"attributes", Json::object()}});
      }) ==
      "the distribution is a Other: must be a FloatDistribution, IntDistribution or CategoricalDistribution");
  CHECK(fault([] { etude::distribution_of(Json::array()); }).starts_with("[] isn't Optuna's JSON"));
}

}  // namespace study_distribution_test
