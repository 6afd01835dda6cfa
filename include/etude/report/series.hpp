#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// A series as stored in a page: one column for each property of its points.
struct SeriesColumns {
  ETUDE_STRUCT(SeriesColumns, (std::string, name, "name in the logs"),
               (std::vector<std::int64_t>, steps, "the last step of each point"),
               (std::vector<double>, values, "the mean of its finite values"),
               (std::vector<double>, lows, "the least of them; empty: all points have one value"),
               (std::vector<double>, highs, "the greatest of them; empty: all points have one value"),
               (std::vector<std::int64_t>, counts, "its finite values; empty: one each"),
               (std::vector<std::int64_t>, broken,
                "its values that aren't finite; empty: all points have none"));

  friend bool operator==(const SeriesColumns&, const SeriesColumns&) = default;
};

namespace detail {

/// Stores numbers by update step in bounded memory. When there are too many points, neighbours are merged in
/// pairs. A merged point keeps the mean and both extremes, so a spike in one of a million steps is still
/// drawn.
class Series {
 public:
  struct Point {
    std::int64_t step = 0;               ///< the last of its steps
    std::int64_t count = 0, broken = 0;  ///< the number of finite and of non-finite values
    double sum = 0, low = 0, high = 0;   ///< of the finite values
    double mean() const { return sum / static_cast<double>(count); }
    void add(const Point& later);
  };

  void add(std::int64_t step, double value);

  /// Limits the series to `most` points (at least 2) from now on, by merging points.
  void limit(std::size_t most_points);

  const std::vector<Point>& points() const { return points_; }

  /// The points, with values rounded to seven significant digits.
  SeriesColumns columns(const std::string& name) const;

  /// Restores the points up to a step. `columns` must be valid: see `check`.
  static Series of(const SeriesColumns& columns, std::int64_t last_step);

 private:
  void halve();

  std::vector<Point> points_;
  std::int64_t values_per_point_ = 1;
  std::size_t most_points_ = 2000;
};

/// Throws ArgumentError, whose text begins with `where`, unless all columns have the same length.
void check(const SeriesColumns& columns, const std::string& where);

}  // namespace detail
}  // namespace etude::inline v0
