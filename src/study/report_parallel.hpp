#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "etude/study/chart.hpp"
#include "etude/study/trial_text.hpp"
#include "report_charts.hpp"

namespace etude::inline v0::detail {

/// An axis of parallel coordinates: a hyperparameter, or an objective.
struct ParallelAxis {
  std::string title;
  ChartAxis axis;
  std::vector<std::optional<double>> places;  ///< by line; unset for a trial without this hyperparameter
};

inline ParallelAxis parallel_choices(const ReportView& view, const std::string& name,
                                     const std::vector<std::size_t>& lines) {
  std::map<std::string, std::size_t> known;
  std::vector<std::string> texts;
  const auto add = [&](std::string text) {
    if (known.emplace(text, texts.size()).second) texts.push_back(std::move(text));
  };
  // In the order of the choices, including those that no trial has.
  for (const auto i : lines) {
    const auto found = view.trials[i].distributions.find(name);
    if (found == view.trials[i].distributions.end()) continue;
    const auto* choices = std::get_if<Choices>(&found->second);
    FrozenTrial each{.params = {{name, 0}}, .distributions = {{name, found->second}}};
    for (std::size_t k = 0; choices && k < std::min<std::size_t>(choices->choices.size(), 50); ++k) {
      each.params[name] = static_cast<double>(k);
      add(param_text(each, name));
    }
    break;
  }
  std::vector<std::optional<std::size_t>> indices;
  for (const auto i : lines) {
    const auto& trial = view.trials[i];
    indices.emplace_back();
    if (!trial.params.contains(name)) continue;
    auto text = param_text(trial, name);
    add(text);
    indices.back() = known.at(text);
  }
  for (auto& text : texts) text = cut_text(text, 14);
  ParallelAxis result{name, ChartAxis(std::move(texts)), {}};
  for (const auto index : indices)
    result.places.push_back(index ? std::optional(result.axis.place(static_cast<double>(*index)))
                                  : std::nullopt);
  return result;
}

inline ParallelAxis parallel_range(const ReportView& view, const std::string& name,
                                   const std::vector<std::size_t>& lines) {
  double low = 0, high = 0;
  bool is_first = true, is_log = true, is_whole = true;
  const auto widen = [&](double from, double to) {
    if (!std::isfinite(from) || !std::isfinite(to)) return;
    low = is_first ? from : std::min(low, from), high = is_first ? to : std::max(high, to);
    is_first = false;
  };
  for (const auto i : lines) {
    const auto& trial = view.trials[i];
    if (const auto found = trial.distributions.find(name); found != trial.distributions.end()) {
      is_whole &= std::holds_alternative<IntRange>(found->second);
      std::visit(
          [&](const auto& range) {
            if constexpr (requires { range.low; }) {
              is_log &= range.log;
              widen(static_cast<double>(range.low), static_cast<double>(range.high));
            }
          },
          found->second);
    }
    if (const auto found = trial.params.find(name); found != trial.params.end())
      widen(found->second, found->second);
  }
  ParallelAxis result{name, ChartAxis(low, high, is_log && low > 0, is_whole), {}};
  for (const auto i : lines) {
    const auto found = view.trials[i].params.find(name);
    const bool is_there = found != view.trials[i].params.end() && std::isfinite(found->second);
    result.places.push_back(is_there ? std::optional(result.axis.place(found->second)) : std::nullopt);
  }
  return result;
}

/// Ranks the lines by the first objective, from 0 for the worst to 1 for the best.
inline std::vector<double> merits_of(const ReportView& view, const std::vector<std::size_t>& lines) {
  const bool is_minimized = view.directions[0] == StudyDirection::minimize;
  std::vector<double> losses, merits;
  for (const auto i : lines) {
    const auto value = value_of(view.trials[i], 0);
    losses.push_back(!value || std::isnan(*value) ? std::numeric_limits<double>::infinity()
                     : is_minimized               ? *value
                                                  : -*value);
  }
  auto sorted = losses;
  std::ranges::sort(sorted);
  for (const double loss : losses) {
    const auto better = static_cast<double>(std::ranges::lower_bound(sorted, loss) - sorted.begin());
    merits.push_back(1 - better / std::max(1.0, static_cast<double>(lines.size()) - 1));
  }
  return merits;
}

inline std::vector<ParallelAxis> parallel_axes(const ReportView& view,
                                               const std::vector<std::size_t>& lines) {
  std::vector<ParallelAxis> axes;
  for (const auto& name : view.names) {
    const bool is_there =
        std::ranges::any_of(lines, [&](std::size_t i) { return view.trials[i].params.contains(name); });
    if (!is_there || axes.size() == most_axes) continue;
    axes.push_back(has_choices(view.trials, name) ? parallel_choices(view, name, lines)
                                                  : parallel_range(view, name, lines));
  }
  for (std::size_t k = 0; k < std::min(view.directions.size(), most_objectives); ++k) {
    axes.push_back({objective_title(view, k), axis_of_objective(view, k), {}});
    for (const auto i : lines) {
      const auto value = finite_value(view.trials[i], k);
      axes.back().places.push_back(value ? std::optional(axes.back().axis.place(*value)) : std::nullopt);
    }
  }
  return axes;
}

/// The chart with a line for each complete trial through its hyperparameters' values.
inline std::string parallel_chart(const ReportView& view) {
  std::vector<std::size_t> lines;
  for (const auto i : view.order)
    if (view.trials[i].state == TrialState::complete && std::ranges::binary_search(view.shown, i))
      lines.push_back(i);
  if (lines.empty() || view.names.empty()) return {};
  const auto axes = parallel_axes(view, lines);
  const auto merits = merits_of(view, lines);
  const auto objective = axes.size() - std::min(view.directions.size(), most_objectives);
  constexpr double margin = 44, top = 48, bottom = 400, absent = 436;
  const auto count = static_cast<double>(axes.size());
  const double gap = std::clamp(1000 / (count - 1), 150.0, 260.0);
  const double width = 2 * margin + (count - 1) * gap + 60;
  const auto x = [&](std::size_t k) { return margin + static_cast<double>(k) * gap; };
  const auto y = [&](double place) { return bottom - place * (bottom - top); };
  bool has_absent = false;
  std::string paths;
  for (std::size_t back = lines.size(); back-- > 0;) {
    const auto& trial = view.trials[lines[back]];
    ChartPath path;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      const auto place = axes[k].places[back];
      has_absent |= !place;
      path.to(x(k), place ? y(*place) : absent);
    }
    paths += fmt::format("{} d=\"{}\"><title>{}</title></path>\n",
                         chart_trial("path", fmt::format("l v{}", std::lround(merits[back] * 9)), trial),
                         path.text(), html_text(trial_title(trial)));
  }
  auto text = fmt::format(
      "<div class=\"wide\" role=\"region\" aria-label=\"Parallel coordinates\"><svg class=\"chart parallel\" "
      "style=\"min-width:{0:.0f}px;max-width:{1:.0f}px\" viewBox=\"0 0 {2:.0f} {3}\" role=\"group\" "
      "tabindex=\"0\" "
      "aria-label=\"Parallel coordinates: a line for each complete trial through its hyperparameters. Arrow "
      "keys go "
      "through the trials.\">\n{4}",
      width * 0.72, width * 1.1, width, has_absent ? 452 : 420, paths);
  for (std::size_t k = 0; k < axes.size(); ++k) {
    text += fmt::format(
        "<path class=\"rail\" d=\"M{0:.1f} {1}V{2}\"/><text class=\"axis\" x=\"{3:.1f}\" y=\"16\" "
        "text-anchor=\"{4}\"><title>{5}</title>{6}</text>\n",
        x(k), top, bottom, k == 0 ? 2 : x(k), k == 0 ? "start" : "middle",
        html_text(cut_text(axes[k].title, 200)), html_text(cut_name(axes[k].title, 14)));
    if (axes[k].axis.is_log())
      text += fmt::format("<text x=\"{:.1f}\" y=\"35\" text-anchor=\"middle\">log</text>\n", x(k));
    for (const auto& [place, words] : axes[k].axis.ticks(5))
      text += fmt::format("<text class=\"halo\" x=\"{:.1f}\" y=\"{:.1f}\" dy=\".35em\">{}</text>\n", x(k) + 6,
                          y(place), html_text(words));
    if (has_absent && k < objective &&
        std::ranges::any_of(axes[k].places, [](const auto& place) { return !place; }))
      text += fmt::format("<text class=\"halo\" x=\"{:.1f}\" y=\"{}\" dy=\".35em\">absent</text>\n", x(k) + 6,
                          absent);
  }
  text += "</svg></div>\n<p class=\"legend\"><span>" + objective_title(view, 0) +
          ": worse <i class=\"scale\"></i> better, by rank</span></p>\n";
  if (objective == most_axes && view.names.size() > most_axes)
    text += fmt::format("<p class=\"note\">{} of {} hyperparameters are drawn, the most important.</p>\n",
                        most_axes, view.names.size());
  return text;
}

}  // namespace etude::inline v0::detail
