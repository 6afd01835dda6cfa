#include "etude/report/series.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace report_series_test {

using etude::ArgumentError;
using etude::SeriesColumns;
using etude::detail::Series;

constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 infinity = std::numeric_limits<double>::infinity();

TEST_CASE("a short series keeps every value") {
  Series series;
  series.add(1, 0.5);
  series.add(2, -2);
  series.add(2, 1.0 / 3);
  const auto columns = series.columns("loss");
  CHECK(columns.name == "loss");
  CHECK(columns.steps == std::vector<std::int64_t>{1, 2, 2});
  CHECK(columns.values == std::vector<double>{0.5, -2, 0.3333333});
  CHECK(columns.lows.empty());
  CHECK(columns.counts.empty());
  CHECK(columns.broken.empty());
}

TEST_CASE("a million steps are at most 2,000 points, with the mean of all and a spike of one") {
  Series series;
  constexpr std::int64_t steps = 1'000'000;
  for (std::int64_t step = 1; step <= steps; ++step)
    series.add(step, step == 654'321 ? 100.0 : static_cast<double>(step % 10));
  const auto& points = series.points();
  CHECK(points.size() <= 2000);
  CHECK(points.size() > 900);
  CHECK(points.back().step == steps);
  std::int64_t count = 0, spikes = 0, last = 0;
  double sum = 0;
  for (const auto& point : points) {
    CHECK(point.step > last);
    last = point.step;
    count += point.count;
    sum += point.sum;
    spikes += point.high == 100 ? 1 : 0;
    CHECK(point.low == 0);
  }
  CHECK(count == steps);
  CHECK(sum == 4'500'000 - 1 + 100);  // 654,321 would have been 1
  CHECK(spikes == 1);
}

TEST_CASE("points are merged in pairs when there are too many") {
  Series series;
  series.limit(4);
  for (int step = 1; step <= 5; ++step) series.add(step, step);
  const auto columns = series.columns("x");
  CHECK(columns.steps == std::vector<std::int64_t>{2, 4, 5});
  CHECK(columns.values == std::vector<double>{1.5, 3.5, 5});
  CHECK(columns.lows == std::vector<double>{1, 3, 5});
  CHECK(columns.highs == std::vector<double>{2, 4, 5});
  CHECK(columns.counts == std::vector<std::int64_t>{2, 2, 1});
  series.limit(2);
  CHECK(series.columns("x").values == std::vector<double>{2.5, 5});
}

TEST_CASE("numbers that aren't finite are counted, and don't spoil a mean") {
  Series series;
  series.limit(2);
  for (const double value : {nan, 2.0, infinity, 4.0}) series.add(1, value);
  const auto columns = series.columns("x");
  CHECK(columns.values == std::vector<double>{2, 4});
  CHECK(columns.broken == std::vector<std::int64_t>{1, 1});
  Series broken;
  broken.add(1, -infinity);
  CHECK(std::isnan(broken.columns("x").values.at(0)));
  Series huge;
  huge.limit(2);
  constexpr double most = std::numeric_limits<double>::max();
  for (int step = 1; step < 100; ++step) huge.add(step, step % 2 == 0 ? most : 1);
  for (const double value : huge.columns("x").values) CHECK(std::isfinite(value));
}

TEST_CASE("a series that is read again continues up to a step") {
  Series series;
  series.limit(4);
  for (int step = 1; step <= 7; ++step) series.add(step, step == 6 ? nan : step);
  const auto columns = series.columns("x");
  CHECK(Series::of(columns, 100).columns("x") == columns);
  const auto earlier = Series::of(columns, 4);
  CHECK(earlier.columns("x").steps == std::vector<std::int64_t>{2, 4});
  CHECK(earlier.points().at(1).low == 3);
}

TEST_CASE("columns that don't fit together are refused with their place") {
  const auto fault = [](const SeriesColumns& columns) {
    return toy::fault_of<ArgumentError>([&] { etude::detail::check(columns, "runs[0].series[3]"); });
  };
  const SeriesColumns good{.name = "x",
                           .steps = {1, 2},
                           .values = {1, 2},
                           .lows = {1, 2},
                           .highs = {1, 2},
                           .counts = {1, 1},
                           .broken = {}};
  CHECK(fault(good) == "nothing was thrown");
  auto bad = good;
  bad.values.pop_back();
  CHECK(fault(bad) == "runs[0].series[3].values has 1 values: must have 2, as many as steps");
  bad = good;
  bad.highs = {};
  CHECK(fault(bad) == "runs[0].series[3].highs has 0 values, and lows 2: must have as many");
  bad = good;
  bad.counts = {};
  CHECK(fault(bad) == "runs[0].series[3].counts has 0 values, and lows 2: must have as many");
  bad = good;
  bad.counts[1] = -1;
  CHECK(toy::contains(fault(bad), "runs[0].series[3].counts[1] is -1: must be from 0 to "));
}

}  // namespace report_series_test
