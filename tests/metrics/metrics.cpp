#include "etude/metrics/metrics.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"

namespace metrics_metrics_test {

using etude::Metrics;

TEST_CASE("metrics keep the order in which they were first given") {
  Metrics metrics;
  metrics["loss"] = 2;
  metrics["accuracy"] = 0.5;
  metrics["loss"] = 1;
  std::vector<std::string> names;
  for (const auto& [name, value] : metrics) names.push_back(name);
  CHECK(names == std::vector<std::string>{"loss", "accuracy"});
  CHECK(metrics.at("loss") == 1);
  CHECK(metrics.size() == 2);
}

TEST_CASE("a new metric is 0, and the last of two with one name counts") {
  Metrics metrics{{"a", 1}, {"b", 2}, {"a", 3}};
  CHECK(metrics.size() == 2);
  CHECK(metrics.at("a") == 3);
  CHECK((metrics["c"] += 1) == 1);
}

TEST_CASE("a missing metric is an error that lists the existing ones") {
  Metrics metrics{{"eval_loss", 1}, {"eval_accuracy", 0.5}};
  CHECK_THROWS_WITH_AS(metrics.at("eval_acuracy"),
                       "there is no metric 'eval_acuracy': must be one of eval_loss, eval_accuracy; "
                       "did you mean 'eval_accuracy'?",
                       etude::MetricError);
  CHECK_THROWS_WITH_AS(std::as_const(metrics).at("f1"),
                       "there is no metric 'f1': must be one of eval_loss, eval_accuracy",
                       etude::MetricError);
  CHECK_THROWS_WITH_AS(Metrics().at("f1"), "there is no metric 'f1': there are no metrics at all",
                       etude::MetricError);
}

TEST_CASE("metrics are found, erased and merged by name") {
  Metrics metrics{{"a", 1}, {"b", 2}, {"c", 3}};
  CHECK(metrics.contains("b"));
  CHECK(metrics.find("b")->second == 2);
  CHECK(metrics.find("x") == metrics.end());
  CHECK(metrics.erase("b"));
  CHECK_FALSE(metrics.erase("b"));
  CHECK_FALSE(metrics.contains("b"));
  metrics.update({{"c", 30}, {"d", 4}});
  CHECK(metrics == Metrics{{"a", 1}, {"c", 30}, {"d", 4}});
  metrics.at("a") = 7;
  CHECK(metrics["a"] == 7);
  metrics.clear();
  CHECK(metrics.empty());
}

TEST_CASE("metrics are equal in any order") {
  CHECK(Metrics{{"a", 1}, {"b", 2}} == Metrics{{"b", 2}, {"a", 1}});
  CHECK(Metrics{{"a", 1}} != Metrics{{"a", 2}});
  CHECK(Metrics{{"a", 1}} != Metrics{{"b", 1}});
  CHECK(Metrics{{"a", 1}} != Metrics{{"a", 1}, {"b", 2}});
}

TEST_CASE("metrics print in a readable form") {
  constexpr auto infinity = std::numeric_limits<double>::infinity();
  CHECK(fmt::format("{}", Metrics{{"loss", 0.123449}, {"learning_rate", 5e-5}, {"epoch", 1}}) ==
        "{loss: 0.1234, learning_rate: 5e-05, epoch: 1.00}");
  CHECK(fmt::format("{}", Metrics{{"step", 12345}, {"speed", 12345.67}, {"zero", 0}, {"minus", -0.5}}) ==
        "{step: 12345, speed: 12346, zero: 0, minus: -0.5}");
  CHECK(fmt::format(
            "{}",
            Metrics{{"a", infinity}, {"b", -infinity}, {"c", std::numeric_limits<double>::quiet_NaN()}}) ==
        "{a: inf, b: -inf, c: nan}");
  CHECK(fmt::format("{}", Metrics{{"grad_norm", 3e38}, {"speed", 2345678.9}, {"tokens", 123456789}}) ==
        "{grad_norm: 3e+38, speed: 2.346e+06, tokens: 123456789}");
  CHECK(fmt::format("{}", Metrics()) == "{}");
  CHECK(fmt::format("<{:.2f}>", Metrics{{"loss", 0.129}, {"n", 3}}) == "<{loss: 0.13, n: 3.00}>");
}

TEST_CASE("a NaN is printed without its sign, which is meaningless") {
  const Metrics metrics{{"loss", -std::numeric_limits<double>::quiet_NaN()}};
  CHECK(fmt::format("{}", metrics) == "{loss: nan}");
  CHECK(fmt::format("{:.3f}", metrics) == "{loss: nan}");
}

TEST_CASE("metrics round-trip through JSON in their order, non-finite numbers too") {
  const Metrics metrics{{"z", 1.5}, {"a", std::numeric_limits<double>::infinity()}};
  CHECK(etude::to_json_value(metrics).dump() == R"({"z":1.5,"a":"Infinity"})");
  CHECK(etude::from_json_text<Metrics>(R"({"z": 1.5, "a": "Infinity"})") == metrics);
}

}  // namespace metrics_metrics_test
