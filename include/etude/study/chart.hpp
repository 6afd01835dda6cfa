#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/study/trial.hpp"

/// SVG charts. Numbers may be as large or as small as a double can be.
namespace etude::inline v0::detail {

/// An axis of a chart.
class ChartAxis {
 public:
  /// An axis from `low` to `high`; both are finite, and positive for a logarithmic axis.
  ChartAxis(double low, double high, bool is_log = false, bool is_whole = false);
  /// An axis with one place for each text.
  explicit ChartAxis(std::vector<std::string> categories);

  /// An axis for an objective's values. It ends before values that are far worse than most, so that the rest
  /// stay distinguishable, and is logarithmic for positive values of very different sizes.
  static ChartAxis of_values(std::vector<double> finite_values, StudyDirection direction);

  /// The position of a finite number or of a category on the axis, from 0 to 1.
  double place(double value) const;
  /// True if the number lies between the ends of the axis.
  bool holds(double value) const;
  bool is_log() const { return is_log_; }

  /// Values and labels of about `most` ticks at most.
  std::vector<std::pair<double, std::string>> ticks(int most) const;

 private:
  std::vector<std::pair<double, std::string>> log_ticks(int most) const;

  double low_, high_;  // in the logarithm if it is logarithmic
  bool is_log_ = false, is_whole_ = false;
  std::vector<std::string> categories_ = {};
};

/// The plot area of a chart with two axes, in units of its viewBox.
struct ChartFrame {
  double width = 720, height = 400, left = 92, right = 18, top = 18, bottom = 64;

  double x(double place) const { return left + place * (width - left - right); }
  double y(double place) const { return height - bottom - place * (height - top - bottom); }

  /// The opening tag, the grid and the axis titles; takes unescaped texts.
  std::string begin(std::string_view label, const ChartAxis& across, std::string_view across_title,
                    const ChartAxis& up, std::string_view up_title) const;
};

/// `d` of a path through points.
class ChartPath {
 public:
  void to(double x, double y);
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// An opening tag with all attributes by which the page's script identifies a trial.
std::string chart_trial(std::string_view element, std::string_view style, const FrozenTrial& trial);

/// The path of a marker, relative to its centre. `kind` is "best", "complete", "pruned", "failed" or
/// "running"; with " beyond" appended, the marker is a diamond.
std::string_view chart_shape(std::string_view kind);

/// A marker for a trial.
std::string chart_marker(std::string_view kind, double x, double y, const FrozenTrial& trial,
                         std::string_view title);

}  // namespace etude::inline v0::detail
