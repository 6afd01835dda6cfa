#include <doctest/doctest.h>

#include <limits>
#include <vector>
#include "etude/base/error.hpp"
#include "etude/optim/metric_schedules.hpp"

namespace optim_metric_schedules_test {

using etude::MetricMode;
using etude::ThresholdMode;

/// The learning rate after each metric, starting from `start`.
template <typename Rule>
std::vector<double> follow(Rule rule, const std::vector<double>& metrics, double start = 1) {
  std::vector<double> lrs{start}, result;
  for (double metric : metrics) {
    if constexpr (requires { rule.step(metric, lrs, lrs); }) {
      rule.step(metric, lrs, {start});
    } else {
      rule.step(metric, lrs);
    }
    result.push_back(lrs[0]);
  }
  return result;
}

using Rates = std::vector<double>;
using Plateau = etude::ReduceLROnPlateau;
using Greedy = etude::GreedyLR;

TEST_CASE("reduce_lr_on_plateau waits for `patience` evaluations without improvement") {
  CHECK(follow(Plateau({.factor = 0.5, .patience = 1}), {3, 3, 3, 3, 3, 2, 2, 2}) ==
        Rates{1, 1, .5, .5, .25, .25, .25, .125});
  CHECK(follow(Plateau({.mode = MetricMode::max, .factor = 0.5, .patience = 0}), {1, 2, 2, 3}) ==
        Rates{1, 1, .5, .5});
  CHECK(follow(Plateau({.factor = 0.5, .patience = 0, .cooldown = 2}), {1, 1, 1, 1, 1}) ==
        Rates{1, .5, .5, .5, .25});
  CHECK(follow(Plateau({.factor = 0.5, .patience = 0, .min_lr = 0.4}), {1, 1, 1, 1}) == Rates{1, .5, .4, .4});
  CHECK(follow(Plateau({.factor = 0.5, .patience = 0, .eps = 0.6}), {1, 1, 1}) == Rates{1, 1, 1});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(follow(Plateau({.factor = 0.5, .patience = 0}), {1, nan, 0.5}) == Rates{1, .5, .5});
}

TEST_CASE("the threshold of an improvement is relative or absolute") {
  const auto reduced = [](MetricMode mode, ThresholdMode threshold_mode, double metric) {
    const Plateau rule(
        {.mode = mode, .factor = 0.5, .patience = 0, .threshold = 0.1, .threshold_mode = threshold_mode});
    return follow(rule, {10, metric}).back() == 0.5;
  };
  CHECK(reduced(MetricMode::min, ThresholdMode::rel, 9.1));
  CHECK_FALSE(reduced(MetricMode::min, ThresholdMode::rel, 8.9));
  CHECK(reduced(MetricMode::min, ThresholdMode::abs, 9.95));
  CHECK_FALSE(reduced(MetricMode::min, ThresholdMode::abs, 9.8));
  CHECK(reduced(MetricMode::max, ThresholdMode::rel, 10.9));
  CHECK_FALSE(reduced(MetricMode::max, ThresholdMode::rel, 11.1));
  CHECK(reduced(MetricMode::max, ThresholdMode::abs, 10.05));
  CHECK_FALSE(reduced(MetricMode::max, ThresholdMode::abs, 10.2));
}

TEST_CASE("greedy raises while the metric improves and lowers while it doesn't") {
  CHECK(follow(Greedy({.factor = 0.5, .patience = 1, .max_lr = 3}), {9, 8, 7, 6, 5, 4}) ==
        Rates{1, 2, 2, 3, 3, 3});
  CHECK(follow(Greedy({.factor = 0.5, .patience = 1, .min_lr = 0.3}), {1, 1, 1, 1, 1, 1}) ==
        Rates{1, 1, .5, .5, .3, .3});
  CHECK(follow(Greedy({.factor = 0.5, .patience = 0, .cooldown = 2}), {1, 1, 1, 1, 1}) ==
        Rates{1, .5, .5, .5, .25});
  CHECK(follow(Greedy({.factor = 0.5, .patience = 0, .warmup = 1, .max_lr = 8}), {9, 8, 7, 6}) ==
        Rates{2, 2, 4, 4});
}

TEST_CASE("greedy restarts after reset_start evaluations at the minimum") {
  CHECK(follow(Greedy({.factor = 0.5, .patience = 0, .min_lr = 0.5, .reset_start = 2}), {0, 1, 1, 1, 1}) ==
        Rates{1, .5, 1, 1, .5});
}

TEST_CASE("greedy uses the mean of the last metrics if configured") {
  // Means of two: 10, 8, 7, 8. The last is worse, though its metric equals the previous one.
  const auto smooth = follow(
      Greedy({.factor = 0.5, .patience = 0, .max_lr = 100, .smooth = true, .window_size = 2}), {10, 6, 8, 8});
  CHECK(smooth == Rates{2, 4, 8, 4});
}

TEST_CASE("options and states are checked") {
  CHECK_THROWS_WITH_AS(Plateau({.factor = 1}), doctest::Contains("factor is 1: must be above 0 and below 1"),
                       etude::ArgumentError);
  CHECK_THROWS_AS(Greedy({.factor = -1}), etude::ArgumentError);
  CHECK_THROWS_AS(Greedy({.window_size = 0}), etude::ArgumentError);
  Plateau rule;
  CHECK_THROWS_WITH_AS(rule.load_state({{"best", {1}}}), doctest::Contains("num_bad_epochs"),
                       etude::CheckpointError);
  CHECK_THROWS_AS(rule.load_state({{"best", {1}}, {"num_bad_epochs", {0.5}}, {"cooldown_counter", {0}}}),
                  etude::CheckpointError);
}

TEST_CASE("a state with impossible numbers, or of another kind or mode, is refused without changes") {
  const double nan_value = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [](auto rule, const char* name, const std::vector<double>& values, const char* text) {
    const etude::SchedulerState before = rule.state();
    etude::SchedulerState bad = before;
    bad["best"] = {0.5};
    bad[name] = values;
    CHECK_THROWS_WITH_AS(rule.load_state(bad), doctest::Contains(text), etude::CheckpointError);
    CHECK(rule.state() == before);
  };
  for (const double value : {-1.0, 0.5, 9007199254740992.0, nan_value}) {
    refuses(Plateau(), "cooldown_counter", {value}, "'cooldown_counter' is");
    refuses(Greedy(), "reset_start", {value}, "'reset_start' is");
  }
  refuses(Plateau(), "best", {nan_value}, "'best' is NaN: must be a number");
  refuses(Plateau(), "best", {1, 2}, "must have 1 number 'best', but has 2");
  refuses(Plateau(), "mode", {1}, "'mode' is 1: must be 0 (min)");
  refuses(Greedy({.mode = MetricMode::max}), "mode", {0}, "'mode' is 0: must be 1 (max)");
  refuses(Plateau(), "num_good_epochs", {1}, "has an unknown 'num_good_epochs'");
  refuses(Greedy({.window_size = 2}), "window", {1, 2, 3}, "must have at most window_size, 2");
  CHECK_THROWS_AS(Greedy().load_state(Plateau().state()), etude::CheckpointError);
  CHECK_THROWS_AS(Plateau().load_state(Greedy().state()), etude::CheckpointError);
}

TEST_CASE("states continue where they were stored") {
  const Greedy greedy({.factor = 0.5, .patience = 1, .cooldown = 1, .smooth = true, .window_size = 3});
  const Plateau plateau({.factor = 0.5, .patience = 1, .cooldown = 1});
  const std::vector<double> metrics{5, 6, 4, 3, 4, 5, 5, 6, 6, 7, 7, 1, 0.5, 0.2, 0.1, 0.1};
  const auto check = [&](auto rule) {
    auto resumed = rule;
    std::vector<double> a{1, 0.5}, b;
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      if (i == 6) {
        resumed.load_state(rule.state());
        b = a;
      }
      const auto step = [&](auto& one, std::vector<double>& lrs) {
        if constexpr (requires { one.step(1.0, lrs, lrs); }) {
          one.step(metrics[i], lrs, {1, 0.5});
        } else {
          one.step(metrics[i], lrs);
        }
      };
      step(rule, a);
      if (i >= 6) {
        step(resumed, b);
        CHECK(a == b);
      }
    }
    CHECK(a[0] != 1);
  };
  check(greedy);
  check(plateau);
}

}  // namespace optim_metric_schedules_test
