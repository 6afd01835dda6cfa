#include "etude/metrics/running_mean.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/metrics/pending_logs.hpp"

namespace metrics_running_mean_test {

TEST_CASE("the mean is weighted, over numbers and tensors of any dtype, in order of insertion") {
  etude::RunningMean mean;
  mean.add(1.0);
  mean.add(torch::full({}, 2.0, torch::kFloat), 3);
  mean.add(torch::full({1}, 4, torch::kLong));
  mean.add(torch::full({}, 0.5, torch::kDouble), 2);
  CHECK(mean.weight() == 7);
  CHECK(mean.sum() == doctest::Approx(1 + 6 + 4 + 1));
  CHECK(mean.mean() == doctest::Approx(12 / 7.));
  mean.reset();
  CHECK(std::isnan(mean.mean()));
}

TEST_CASE("float32 values keep the precision that a float32 sum would lose") {
  etude::RunningMean mean;
  mean.add(torch::full({}, 16777216.0f));
  for (int i = 0; i < 8; ++i) mean.add(torch::full({}, 1.0f));
  CHECK(mean.sum() == 16777224);
}

TEST_CASE("more tensors than it keeps are all counted") {
  etude::RunningMean mean;
  for (int i = 0; i < 10000; ++i) mean.add(torch::full({}, 1.0, torch::kDouble));
  CHECK(mean.sum() == 10000);
}

TEST_CASE("with the filter, a non-finite value counts as the mean of those before it") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  etude::RunningMean mean(true);
  mean.add(nan);  // without preceding values it counts as the mean of the others
  CHECK(std::isnan(mean.mean()));
  mean.add(2.0);
  mean.add(torch::full({}, nan, torch::kDouble));
  mean.add(5.0);
  CHECK(mean.sum() == doctest::Approx(3 + 2 + 2 + 5));
  CHECK(mean.non_finite() == 2);
}

TEST_CASE("non-finite values are counted, with the step of the first, with the filter and without") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const bool filter : {true, false}) {
    etude::RunningMean mean(filter);
    CHECK(mean.first_non_finite() == std::nullopt);
    mean.add(torch::full({}, 1.0f), 1, 3);
    mean.add(torch::full({}, inf, torch::kDouble), 1, 4);
    mean.add(torch::full({}, inf, torch::kFloat), 1, 5);
    CHECK(mean.non_finite() == 2);
    CHECK(mean.first_non_finite() == 4);
    etude::RunningMean again(filter);
    again.load_state(mean.state());
    again.add(inf, 1, 9);
    CHECK(again.non_finite() == 3);
    CHECK(again.first_non_finite() == 4);
    again.reset();
    CHECK(again.non_finite() == 0);
    CHECK(again.first_non_finite() == std::nullopt);
  }
}

TEST_CASE("reading a loss on the CPU runs no operator") {
  int operators = 0;
  static int* counter = nullptr;
  counter = &operators;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
        ++*counter;
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  const auto loss = torch::full({}, 1.5f);
  const int before = operators;
  CHECK(before > 0);
  etude::RunningMean mean(true);
  for (int i = 0; i < 100; ++i) mean.add(loss);
  CHECK(mean.mean() == 1.5);
  CHECK(operators == before);
  at::removeCallback(handle);
}

TEST_CASE("the number of filtered values continues from any count in a checkpoint") {
  for (const auto& [before, after] :
       {std::pair{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()},
        {std::int64_t{-5}, std::int64_t{1}}}) {
    etude::RunningMean mean(true);
    mean.load_state({.sum = 1, .weight = 1, .leading = 0, .filtered = before});
    mean.add(std::nan(""));
    CHECK(mean.non_finite() == after);
  }
}

TEST_CASE("pending logs are means by name, in the order of their first value") {
  etude::PendingLogs logs;
  logs.add("b", 1.0);
  logs.add("a", torch::full({}, 2.0));
  logs.add("b", 3.0);
  etude::Metrics taken;
  logs.take_into(taken);
  CHECK(fmt::format("{}", taken) == "{b: 2, a: 2}");
  etude::Metrics nothing;
  logs.take_into(nothing);
  CHECK(nothing.empty());
}

TEST_CASE("a value with more than one element is refused by name, and leaves nothing in the log") {
  etude::PendingLogs logs;
  CHECK_THROWS_WITH_AS(logs.add("v", torch::zeros({3})),
                       "'v': a logged value must have exactly one element, not float32 [3]",
                       etude::DataError);
  CHECK_THROWS_WITH_AS(logs.add("v", torch::Tensor()),
                       "'v': a logged value must have exactly one element, not an undefined tensor",
                       etude::DataError);
  etude::Metrics taken;
  logs.take_into(taken);
  CHECK(taken.empty());
}

TEST_CASE("what has the weight 0 counts for nothing, and weights may be tensors") {
  etude::RunningMean mean;
  mean.add(torch::tensor(std::nanf("")), 0.0);
  mean.add(torch::tensor(2.0F), torch::tensor(3, torch::kLong));
  mean.add(torch::tensor(std::nanf("")), torch::tensor(0, torch::kLong));
  mean.add(torch::tensor(6.0F), 1.0);
  mean.add(std::nan(""), 0);
  CHECK(mean.mean() == 3);
  CHECK(mean.weight() == 4);
  CHECK(mean.non_finite() == 0);
  CHECK_THROWS_AS(mean.add(torch::ones({2}), torch::tensor(1.0)), etude::DataError);
}

TEST_CASE("merged logs keep their weights, and one of weight 0 changes nothing") {
  etude::PendingLogs logs, others;
  logs.add("v", 1.0, 3);
  others.add("v", 5.0, 1);
  others.add("w", std::nan(""), 0);
  logs.merge(std::move(others));
  etude::Metrics taken;
  logs.take_into(taken);
  CHECK(taken.size() == 1);
  CHECK(taken.at("v") == 2);
}

}  // namespace metrics_running_mean_test
