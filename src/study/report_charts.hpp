#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/study/chart.hpp"
#include "etude/study/trial_text.hpp"

namespace etude::inline v0::detail {

/// A study's data, shared by all parts of a page.
struct ReportView {
  const std::vector<FrozenTrial>& trials;
  const std::vector<StudyDirection>& directions;
  std::vector<std::size_t> best, order = {}, shown = {};        ///< indices of trials; `shown` by number
  std::vector<std::map<std::string, double>> importances = {};  ///< by objective
  std::vector<std::string> names = {};                          ///< the most important first

  bool is_best(std::size_t i) const { return std::ranges::binary_search(best, i); }
};

/// A page's limits, independent of the study's size.
constexpr std::size_t most_shown = 1000, most_axes = 12, most_columns = 30, most_bars = 20, most_curves = 200,
                      most_points = 200, most_objectives = 4;

/// Selects trials to draw, sorted by number: all of `order`, or if there are more than `most`, half of `most`
/// from its front and the other half evenly spaced over the rest.
inline std::vector<std::size_t> thinned(const std::vector<std::size_t>& order, std::size_t most) {
  auto kept = order;
  if (order.size() > most) {
    const auto half = most / 2;
    std::vector<std::size_t> rest(order.begin() + static_cast<std::ptrdiff_t>(half), order.end());
    std::ranges::sort(rest);
    kept.resize(half);
    for (std::size_t i = 0; i < half; ++i) kept.push_back(rest[i * rest.size() / half]);
  }
  std::ranges::sort(kept);
  return kept;
}

inline std::string objective_title(const ReportView& view, std::size_t objective) {
  return view.directions.size() == 1 ? "value" : fmt::format("value {}", objective + 1);
}

inline std::string_view direction_text(StudyDirection direction) {
  return direction == StudyDirection::minimize ? "less is better" : "more is better";
}

/// A label such as "trial 12, pruned: 0.25".
inline std::string trial_title(const FrozenTrial& trial) {
  auto title = fmt::format("trial {}, {}", trial.number, state_text(trial.state));
  for (std::size_t k = 0; k < std::min(std::max<std::size_t>(trial.values.size(), 1), most_objectives); ++k)
    if (const auto value = value_of(trial, k))
      title += fmt::format("{} {}", k == 0 ? ":" : ",", number_text(*value));
  return title;
}

/// A trial's value for an objective; unset if it isn't finite and so can't be drawn.
inline std::optional<double> finite_value(const FrozenTrial& trial, std::size_t objective) {
  const auto value = value_of(trial, objective);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

inline ChartAxis axis_of_objective(const ReportView& view, std::size_t objective) {
  std::vector<double> values;
  for (const auto& trial : view.trials)
    if (const auto value = finite_value(trial, objective); value && trial.state == TrialState::complete)
      values.push_back(*value);
  if (values.empty())
    for (const auto& trial : view.trials)
      if (const auto value = finite_value(trial, objective)) values.push_back(*value);
  return ChartAxis::of_values(std::move(values), view.directions[objective]);
}

inline std::string log_note(const ChartAxis& axis) { return axis.is_log() ? ", log" : ""; }

/// A note below a chart; empty if there is nothing to note.
inline std::string beyond_note(std::size_t beyond) {
  if (beyond == 0) return {};
  return fmt::format("<p class=\"note\">{} value{} beyond the axis: drawn as a diamond at an end.</p>\n",
                     beyond, beyond == 1 ? " is" : "s are");
}

/// A legend for the kinds of markers in a chart.
inline std::string chart_legend(const std::set<std::string>& kinds, const std::string& more = {}) {
  std::string text = "<p class=\"legend\">" + more;
  constexpr std::array known{std::pair{"best", "best"}, std::pair{"complete", "complete"},
                             std::pair{"pruned", "pruned, the last report"}, std::pair{"running", "running"},
                             std::pair{"failed", "failed"}};
  for (const auto& [kind, words] : known)
    if (kinds.contains(kind))
      text += fmt::format(
          "<span><svg viewBox=\"-10 -10 20 20\" aria-hidden=\"true\"><path class=\"m {}\" d=\"M0 "
          "0{}\"/></svg>{}</span>\n",
          kind, chart_shape(kind), words);
  return text + "</p>\n";
}

/// The chart of each trial's value and the best value so far.
inline std::string history_chart(const ReportView& view, std::size_t objective) {
  const auto up = axis_of_objective(view, objective);
  const ChartAxis across(0, std::max(1.0, static_cast<double>(view.trials.size()) - 1), false, true);
  const ChartFrame frame;
  const auto title = objective_title(view, objective);
  auto text = frame.begin(
      fmt::format("Optimisation history: {} of each trial. Arrow keys go through the trials.", title), across,
      "trial", up, fmt::format("{} ({}{})", title, direction_text(view.directions[objective]), log_note(up)));
  const bool is_minimized = view.directions[objective] == StudyDirection::minimize;
  ChartPath path;
  std::optional<double> least;
  double last_x = 0;
  for (std::size_t i = 0; i < view.trials.size(); ++i) {
    const auto value = finite_value(view.trials[i], objective);
    if (!value || view.trials[i].state != TrialState::complete) continue;
    if (least && (is_minimized ? *value >= *least : *value <= *least)) continue;
    const double x = frame.x(across.place(static_cast<double>(i)));
    // A step narrower than a tenth of a unit isn't visible.
    if (least && x - last_x < 0.1) continue;
    if (least) path.to(x, frame.y(up.place(*least)));
    path.to(last_x = x, frame.y(up.place(*value)));
    least = value;
  }
  if (least) {
    path.to(frame.x(1), frame.y(up.place(*least)));
    text += fmt::format("<path class=\"so-far\" d=\"{}\"><title>best so far</title></path>\n", path.text());
  }
  std::size_t beyond = 0;
  std::set<std::string> kinds;
  std::string markers, best_markers;
  for (const auto i : view.shown) {
    const auto& trial = view.trials[i];
    const double x = frame.x(across.place(static_cast<double>(i)));
    const auto value = value_of(trial, objective);
    if (trial.state == TrialState::waiting) continue;
    std::string kind(state_text(trial.state));
    if (!value || std::isnan(*value) || trial.state == TrialState::fail) {
      kinds.insert(kind);
      markers += chart_marker(kind, x, frame.y(0), trial, trial_title(trial));
      continue;
    }
    if (view.is_best(i)) kind = "best";
    kinds.insert(kind);
    if (!up.holds(*value)) ++beyond, kind += " beyond";
    (view.is_best(i) ? best_markers : markers) +=
        chart_marker(kind, x, frame.y(up.place(*value)), trial, trial_title(trial));
  }
  return text + markers + best_markers + "</svg>\n" +
         chart_legend(kinds, least ? "<span><i class=\"so-far\"></i>best so far</span>" : "") +
         beyond_note(beyond);
}

/// The chart of the complete trials over two objectives, with the Pareto front.
inline std::string pareto_chart(const ReportView& view) {
  const auto across = axis_of_objective(view, 0), up = axis_of_objective(view, 1);
  const ChartFrame frame;
  auto text =
      frame.begin("Pareto front: the two values of each trial. Arrow keys go through the trials.", across,
                  fmt::format("value 1 ({}{})", direction_text(view.directions[0]), log_note(across)), up,
                  fmt::format("value 2 ({}{})", direction_text(view.directions[1]), log_note(up)));
  std::vector<std::pair<double, double>> front;
  std::string markers, best_markers;
  std::set<std::string> kinds;
  std::size_t beyond = 0;
  for (const auto i : view.shown) {
    const auto& trial = view.trials[i];
    const auto first = value_of(trial, 0), second = value_of(trial, 1);
    if (trial.state != TrialState::complete || !first || !second || std::isnan(*first) || std::isnan(*second))
      continue;
    const double x = frame.x(across.place(*first)), y = frame.y(up.place(*second));
    std::string kind = view.is_best(i) ? "best" : "complete";
    if (kind == "best") front.emplace_back(x, y);
    kinds.insert(kind);
    if (!across.holds(*first) || !up.holds(*second)) ++beyond, kind += " beyond";
    (view.is_best(i) ? best_markers : markers) += chart_marker(kind, x, y, trial, trial_title(trial));
  }
  std::ranges::sort(front);
  ChartPath path;
  double last_x = 0, last_y = 0;
  for (const auto& [x, y] : front) {
    // The corner between two points of the front is the worse value of each objective.
    if (!path.empty())
      view.directions[0] == StudyDirection::minimize ? path.to(x, last_y) : path.to(last_x, y);
    path.to(last_x = x, last_y = y);
  }
  if (!path.empty()) text += fmt::format("<path class=\"so-far\" d=\"{}\"/>\n", path.text());
  return text + markers + best_markers + "</svg>\n" + chart_legend(kinds) + beyond_note(beyond);
}

/// The chart of the values that trials reported, by step.
inline std::string curves_chart(const ReportView& view) {
  std::vector<std::size_t> reported;
  const auto has_reports = [&](std::size_t i) { return !view.trials[i].intermediate_values.empty(); };
  const auto with_reports = std::ranges::count_if(view.order, has_reports);
  for (const auto i : view.order)
    if (has_reports(i) && std::ranges::binary_search(view.shown, i)) reported.push_back(i);
  const auto sample = thinned(reported, most_curves);
  std::vector<std::size_t> drawn;
  for (const auto i : reported)
    if (std::ranges::binary_search(sample, i)) drawn.push_back(i);
  if (drawn.empty()) return {};
  std::vector<double> values;
  double first = 0, last = 0;
  bool is_first = true;
  for (const auto i : drawn)
    for (const auto& [step, value] : view.trials[i].intermediate_values) {
      const auto at = static_cast<double>(step);
      first = is_first ? at : std::min(first, at), last = is_first ? at : std::max(last, at);
      is_first = false;
      if (std::isfinite(value)) values.push_back(value);
    }
  const auto up = ChartAxis::of_values(std::move(values), view.directions[0]);
  const ChartAxis across(first, last, false, true);
  const ChartFrame frame;
  auto text =
      frame.begin("Curves: the values that trials reported, by step. Arrow keys go through the trials.",
                  across, "step", up, "reported value" + log_note(up));
  std::set<std::string> kinds;
  // The best is drawn last, on top.
  for (auto i = drawn.rbegin(); i != drawn.rend(); ++i) {
    const auto& trial = view.trials[*i];
    const auto& reports = trial.intermediate_values;
    const auto stride = (reports.size() - 1) / most_points + 1;
    ChartPath path;
    std::size_t place = 0;
    double x = 0, y = 0;
    for (const auto& [step, value] : reports) {
      const bool is_drawn = place % stride == 0 || place + 1 == reports.size();
      ++place;
      if (!is_drawn || !std::isfinite(value)) continue;
      path.to(x = frame.x(across.place(static_cast<double>(step))), y = frame.y(up.place(value)));
    }
    if (path.empty()) continue;
    const std::string kind = view.is_best(*i) ? "best" : std::string(state_text(trial.state));
    text += fmt::format("{} d=\"{}\"><title>{}</title></path>\n", chart_trial("path", "l " + kind, trial),
                        path.text(), html_text(trial_title(trial)));
    kinds.insert(kind);
    if (kind != "complete") text += chart_marker(kind, x, y, trial, trial_title(trial));
  }
  text += "</svg>\n" + chart_legend(kinds);
  if (static_cast<std::size_t>(with_reports) > drawn.size())
    text +=
        fmt::format("<p class=\"note\">{} of {} trials with reports are drawn, among them the best.</p>\n",
                    drawn.size(), with_reports);
  return text;
}

}  // namespace etude::inline v0::detail
