#include "etude/study/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/study/trial_text.hpp"

namespace etude::inline v0::detail {

ChartAxis::ChartAxis(double low, double high, bool is_log, bool is_whole)
    : low_(is_log ? std::log10(low) : low),
      high_(is_log ? std::log10(high) : high),
      is_log_(is_log),
      is_whole_(is_whole) {}

ChartAxis::ChartAxis(std::vector<std::string> categories)
    : low_(0), high_(static_cast<double>(categories.size()) - 1), categories_(std::move(categories)) {}

ChartAxis ChartAxis::of_values(std::vector<double> finite_values, StudyDirection direction) {
  auto& values = finite_values;
  if (values.empty()) return {0, 1};
  std::ranges::sort(values);
  ChartAxis axis(0, 1);
  axis.is_log_ = values.front() > 0 && values.back() / 100 > values.front();
  if (axis.is_log_)
    for (auto& value : values) value = std::log10(value);
  const bool is_minimized = direction == StudyDirection::minimize;
  if (!is_minimized) std::ranges::reverse(values);
  // Computes with quarters, since the distance between two doubles may overflow.
  const auto ends = [&](double middle, double near, double far, double times) {
    const double most = near / 4 - middle / 4;
    const bool is_far = most != 0 && std::abs(far / 4 - middle / 4) > times * std::abs(most);
    return is_far && std::isfinite(middle + 6 * most) ? middle + 6 * most : far;
  };
  const auto at = [&](std::size_t tenths) { return values[(values.size() - 1) * tenths / 10]; };
  // A best value this far from the others may well be an error.
  const double best = ends(at(5), at(1), values.front(), 1000);
  const double end = ends(best, at(9), values.back(), 3);
  axis.low_ = std::min(best, end), axis.high_ = std::max(best, end);
  const double margin = (axis.high_ - axis.low_) / 25;
  if (std::isfinite(axis.low_ - margin) && std::isfinite(axis.high_ + margin))
    axis.low_ -= margin, axis.high_ += margin;
  return axis;
}

double ChartAxis::place(double value) const {
  if (is_log_) value = value > 0 ? std::log10(value) : low_;
  // Computes with halves, since the distance between two doubles may overflow.
  const double range = high_ / 2 - low_ / 2, above = value / 2 - low_ / 2;
  return range > 0 ? std::clamp(above / range, 0.0, 1.0) : 0.5;
}

bool ChartAxis::holds(double value) const {
  if (is_log_) value = value > 0 ? std::log10(value) : low_ - 1;
  return value >= low_ && value <= high_;
}

std::vector<std::pair<double, std::string>> ChartAxis::log_ticks(int most) const {
  std::vector<std::pair<double, std::string>> ticks;
  const auto add = [&](double value) {
    if (holds(value)) ticks.emplace_back(place(value), number_text(value, 3));
  };
  const double first = std::ceil(low_ - 1e-9), last = std::floor(high_ + 1e-9);
  if (last - first >= 1) {
    const double step = std::ceil((last - first + 1) / most);
    for (double power = first; power <= last; power += step)
      ticks.emplace_back(std::clamp((power - low_) / (high_ - low_), 0.0, 1.0),
                         number_text(std::pow(10, power), 3));
    return ticks;
  }
  for (double power = std::floor(low_); power <= high_; power += 1)
    for (const int digit : {1, 2, 5}) add(digit * std::pow(10, power));
  if (ticks.size() >= 2) return ticks;
  return {{0, number_text(std::pow(10, low_), 3)}, {1, number_text(std::pow(10, high_), 3)}};
}

std::vector<std::pair<double, std::string>> ChartAxis::ticks(int most) const {
  std::vector<std::pair<double, std::string>> ticks;
  if (!categories_.empty()) {
    const auto step = (categories_.size() - 1) / 12 + 1;
    for (std::size_t i = 0; i < categories_.size(); i += step)
      ticks.emplace_back(place(static_cast<double>(i)), categories_[i]);
    return ticks;
  }
  if (!(high_ > low_)) return {{0.5, number_text(is_log_ ? std::pow(10, low_) : low_, 4)}};
  if (is_log_) return log_ticks(most);
  const double rough = high_ / most - low_ / most, size = std::pow(10, std::floor(std::log10(rough)));
  double step = size;
  for (const int factor : {2, 5, 10})
    if (step < rough * 0.999) step = size * factor;
  if (is_whole_) step = std::max(step, 1.0);
  if (!(size > 0) || !std::isfinite(step)) return {{0, number_text(low_, 3)}, {1, number_text(high_, 3)}};
  const double largest = std::max(std::abs(low_), std::abs(high_));
  const int digits = std::clamp(static_cast<int>(std::ceil(std::log10(largest / step))) + 1, 3, 12);
  const double first = std::ceil(low_ / step - 1e-9);
  for (int i = 0; i <= most + 1; ++i) {
    const double value = (first + i) * step;
    if (value > high_ + step * 1e-6) break;
    ticks.emplace_back(place(value), number_text(std::abs(value) < step * 1e-6 ? 0 : value, digits));
  }
  return ticks;
}

std::string ChartFrame::begin(std::string_view label, const ChartAxis& across, std::string_view across_title,
                              const ChartAxis& up, std::string_view up_title) const {
  auto text = fmt::format(
      "<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"group\" tabindex=\"0\" aria-label=\"{}\">\n", width,
      height, html_text(label));
  for (const auto& [place, words] : across.ticks(6))
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}\"/><text x=\"{0:.1f}\" y=\"{3:.1f}\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x(place), top, height - bottom, height - bottom + 22, html_text(words));
  for (const auto& [place, words] : up.ticks(5))
    text += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}H{2:.1f}\"/><text x=\"{3:.1f}\" y=\"{1:.1f}\" dy=\".35em\" "
        "text-anchor=\"end\">{4}</text>\n",
        left, y(place), width - right, left - 8, html_text(words));
  return text + fmt::format(
                    "<text class=\"axis\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n"
                    "<text class=\"axis\" transform=\"translate(16 {:.1f}) rotate(-90)\" "
                    "text-anchor=\"middle\">{}</text>\n",
                    x(0.5), height - 10, html_text(across_title), y(0.5), html_text(up_title));
}

void ChartPath::to(double x, double y) {
  text_ += fmt::format("{}{:.1f} {:.1f}", text_.empty() ? "M" : "L", x, y);
}

std::string chart_trial(std::string_view element, std::string_view style, const FrozenTrial& trial) {
  return fmt::format("<{} class=\"{}\" data-t=\"{}\"", element, style, trial.number);
}

std::string_view chart_shape(std::string_view kind) {
  if (kind.ends_with("beyond")) return "m0-7 6 7-6 7-6-7z";
  if (kind == "best") return "m0-9 2.6 5.6 6.1.7-4.6 4.2 1.3 6-5.4-3-5.4 3 1.3-6-4.6-4.2 6.1-.7z";
  if (kind == "pruned") return "m-5-4h10l-5 9z";
  if (kind == "failed") return "m-5-5 10 10m0-10-10 10";
  return "m-4.5 0a4.5 4.5 0 1 0 9 0 4.5 4.5 0 1 0-9 0";
}

std::string chart_marker(std::string_view kind, double x, double y, const FrozenTrial& trial,
                         std::string_view title) {
  return fmt::format("{} d=\"M{:.1f} {:.1f}{}\"><title>{}</title></path>\n",
                     chart_trial("path", fmt::format("m {}", kind), trial), x, y, chart_shape(kind),
                     html_text(title));
}

}  // namespace etude::inline v0::detail
