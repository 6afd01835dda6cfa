#include "etude/report/series.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

namespace {

/// Rounds a number to seven digits, to keep pages small.
double in_seven_digits(double value) {
  return read_number<double>(fmt::format("{:.7g}", value)).value_or(value);
}

}  // namespace

void Series::Point::add(const Point& later) {
  step = later.step;
  broken += later.broken;
  if (later.count == 0) return;
  low = count == 0 ? later.low : std::min(low, later.low);
  high = count == 0 ? later.high : std::max(high, later.high);
  sum += later.sum;
  count += later.count;
}

void Series::add(std::int64_t step, double value) {
  // Larger values could make the sum overflow.
  constexpr double most = std::numeric_limits<double>::max() / (std::int64_t{1} << 53);
  const bool is_number = std::abs(value) <= most;
  const Point point{.step = step,
                    .count = is_number ? 1 : 0,
                    .broken = is_number ? 0 : 1,
                    .sum = is_number ? value : 0,
                    .low = is_number ? value : 0,
                    .high = is_number ? value : 0};
  if (!points_.empty() && points_.back().count + points_.back().broken < values_per_point_)
    points_.back().add(point);
  else
    points_.push_back(point);
  while (points_.size() > most_points_) halve();
}

void Series::limit(std::size_t most_points) {
  most_points_ = std::max<std::size_t>(most_points, 2);
  while (points_.size() > most_points_) halve();
}

void Series::halve() {
  const auto half = (points_.size() + 1) / 2;
  for (std::size_t i = 0; i < half; ++i) {
    points_[i] = points_[2 * i];
    if (2 * i + 1 < points_.size()) points_[i].add(points_[2 * i + 1]);
  }
  points_.resize(half);
  values_per_point_ *= 2;
}

SeriesColumns Series::columns(const std::string& name) const {
  SeriesColumns columns;
  columns.name = name;
  const bool is_merged = std::ranges::any_of(points_, [](const Point& point) { return point.count > 1; });
  const bool is_broken = std::ranges::any_of(points_, [](const Point& point) { return point.broken > 0; });
  for (const auto& point : points_) {
    columns.steps.push_back(point.step);
    columns.values.push_back(point.count == 0 ? std::numeric_limits<double>::quiet_NaN()
                                              : in_seven_digits(point.mean()));
    if (is_merged) {
      columns.lows.push_back(in_seven_digits(point.low));
      columns.highs.push_back(in_seven_digits(point.high));
    }
    if (is_merged || is_broken) columns.counts.push_back(point.count);
    if (is_broken) columns.broken.push_back(point.broken);
  }
  return columns;
}

Series Series::of(const SeriesColumns& columns, std::int64_t last_step) {
  Series series;
  for (std::size_t i = 0; i < columns.steps.size() && columns.steps[i] <= last_step; ++i) {
    const double value = columns.values[i];
    const auto broken = columns.broken.empty() ? 0 : columns.broken[i];
    const auto count = !std::isfinite(value) ? 0 : columns.counts.empty() ? 1 : columns.counts[i];
    const bool has_extremes = count > 0 && !columns.lows.empty();
    series.points_.push_back({.step = columns.steps[i],
                              .count = count,
                              .broken = count == 0 ? std::max<std::int64_t>(broken, 1) : broken,
                              .sum = count == 0 ? 0 : value * static_cast<double>(count),
                              .low = count == 0     ? 0
                                     : has_extremes ? columns.lows[i]
                                                    : value,
                              .high = count == 0     ? 0
                                      : has_extremes ? columns.highs[i]
                                                     : value});
    series.values_per_point_ =
        std::max(series.values_per_point_, series.points_.back().count + series.points_.back().broken);
  }
  series.limit(series.most_points_);
  return series;
}

void check(const SeriesColumns& columns, const std::string& where) {
  const auto same = [&](std::string_view name, std::size_t size, bool may_be_empty) {
    if (size == columns.steps.size() || (size == 0 && may_be_empty)) return;
    throw ArgumentError(fmt::format("{}.{} has {} values: must have {}, as many as steps", where, name, size,
                                    columns.steps.size()));
  };
  same("values", columns.values.size(), false);
  same("lows", columns.lows.size(), true);
  same("highs", columns.highs.size(), true);
  same("counts", columns.counts.size(), true);
  same("broken", columns.broken.size(), true);
  const auto as_lows = [&](std::string_view name, std::size_t size) {
    if (size == columns.lows.size() || (name == "counts" && columns.lows.empty())) return;
    throw ArgumentError(fmt::format("{}.{} has {} values, and lows {}: must have as many", where, name, size,
                                    columns.lows.size()));
  };
  as_lows("highs", columns.highs.size());
  as_lows("counts", columns.counts.size());
  for (std::size_t i = 0; i < columns.steps.size(); ++i) {
    const auto least = [&](std::string_view name, std::int64_t value, std::int64_t most) {
      if (value >= 0 && value <= most) return;
      throw ArgumentError(fmt::format("{}.{}[{}] is {}: must be from 0 to {}", where, name, i, value, most));
    };
    constexpr std::int64_t most = std::int64_t{1}
                                  << 53;  // the largest integer that JavaScript counts exactly
    least("steps", columns.steps[i], most);
    constexpr std::int64_t most_values = std::int64_t{1} << 40;
    if (!columns.counts.empty()) least("counts", columns.counts[i], most_values);
    if (!columns.broken.empty()) least("broken", columns.broken[i], most_values);
  }
}

}  // namespace etude::inline v0::detail
