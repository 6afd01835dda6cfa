#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// A series as a page holds it: a column of each property of its points.
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

/// Numbers over update steps in bounded memory. When there are too many points, each two neighbours become
/// one, which keeps the mean and both extremes, so that a spike of one step in a million is still drawn.
class Series {
 public:
  struct Point {
    std::int64_t step = 0;               ///< the last of those that it stands for
    std::int64_t count = 0, broken = 0;  ///< values that are finite, and that aren't
    double sum = 0, low = 0, high = 0;   ///< of the finite ones
    double mean() const { return sum / static_cast<double>(count); }
    void add(const Point& later);
  };

  void add(std::int64_t step, double value);

  /// Merges points until there are at most so many (at least 2), now and later.
  void limit(std::size_t most_points);

  const std::vector<Point>& points() const { return points_; }

  /// Values have seven significant digits.
  SeriesColumns columns(const std::string& name) const;

  /// The points up to a step. `columns` must be valid: see `check`.
  static Series of(const SeriesColumns& columns, std::int64_t last_step);

 private:
  void halve();

  std::vector<Point> points_;
  std::int64_t values_per_point_ = 1;
  std::size_t most_points_ = 2000;
};

/// Throws ArgumentError that begins with `where` unless all columns have the same length.
void check(const SeriesColumns& columns, const std::string& where);

}  // namespace detail
}  // namespace etude::inline v0
