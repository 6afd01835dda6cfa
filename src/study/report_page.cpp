#include "etude/study/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/reflect/json.hpp"
#include "etude/report/html_page.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/trial_text.hpp"
#include "page_files.hpp"

namespace etude::inline v0::detail {

namespace {

using Json = nlohmann::ordered_json;

/// The limits of a page, whatever the study.
constexpr std::size_t most_shown = 1000, most_params = 30, most_bars = 20, most_curves = 200,
                      most_points = 200, most_objectives = 4, most_best = 20, most_choices = 50;

/// The sorted indices of the trials to show: all of `order`, or the best `most` / 2 and as many others at
/// equal distances.
std::vector<std::size_t> thinned(const std::vector<std::size_t>& order, std::size_t most) {
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

std::string shown_text(std::string_view text) { return cut_text(text, 300); }

/// The first and the last time at which a trial began or ended, in seconds since 1970; null if none is known.
/// Times outside the calendar are ignored.
Json times_json(const std::vector<FrozenTrial>& trials) {
  constexpr double year_1 = -62135596800, year_10000 = 253402300800;
  std::optional<double> first, last;
  for (const auto& trial : trials)
    for (const auto& time : {trial.datetime_start, trial.datetime_complete}) {
      if (!time || !(*time >= year_1 && *time < year_10000)) continue;
      first = std::min(first.value_or(*time), *time);
      last = std::max(last.value_or(*time), *time);
    }
  return first ? Json{*first, *last} : Json();
}

/// The importances for an objective, the largest first.
Json importances_json(const std::map<std::string, double>& importances) {
  std::vector<std::pair<double, std::string>> bars;
  for (const auto& [name, importance] : importances) bars.emplace_back(-importance, name);
  std::ranges::sort(bars);
  auto json = Json::array();
  for (std::size_t i = 0; i < std::min(bars.size(), most_bars); ++i)
    json.push_back({shown_text(bars[i].second), -bars[i].first});
  return json;
}

/// The best values of an objective so far, each with the index of the trial that reached it. Leaves out steps
/// narrower than a five-thousandth of the axis, which can't be seen.
Json best_so_far_json(const std::vector<FrozenTrial>& trials, std::size_t objective,
                      StudyDirection direction) {
  auto json = Json::array();
  std::optional<double> best;
  std::size_t last = 0;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const auto value = value_of(trials[i], objective);
    if (!value || !std::isfinite(*value) || trials[i].state != TrialState::complete) continue;
    if (best && (direction == StudyDirection::minimize ? *value >= *best : *value <= *best)) continue;
    best = value;
    if (!json.empty() && (i - last) * 5000 < trials.size()) {
      json.back() = {i, *value};  // too close to be told apart in a chart
      continue;
    }
    json.push_back({i, *value});
    last = i;
  }
  return json;
}

/// A hyperparameter with the texts of its choices, or with the range that the trials' distributions cover.
Json param_json(const std::vector<FrozenTrial>& trials, const std::vector<std::size_t>& shown,
                const std::string& name) {
  Json json{{"name", shown_text(name)}};
  std::vector<const Distribution*> distributions;
  for (const auto i : shown)
    if (const auto found = trials[i].distributions.find(name); found != trials[i].distributions.end())
      distributions.push_back(&found->second);
  if (has_choices(trials, name)) {
    // In the order of the choices, even those that no trial has.
    auto& texts = json["choices"] = Json::array();
    for (const auto* distribution : distributions)
      if (const auto* choices = std::get_if<Choices>(distribution)) {
        FrozenTrial each{.params = {{name, 0}}, .distributions = {{name, *distribution}}};
        for (std::size_t k = 0; k < std::min(choices->choices.size(), most_choices); ++k) {
          each.params[name] = static_cast<double>(k);
          texts.push_back(shown_text(param_text(each, name)));
        }
        break;
      }
    return json;
  }
  bool is_log = !distributions.empty(), is_whole = is_log;
  std::optional<double> low, high;
  for (const auto* distribution : distributions) {
    is_whole &= std::holds_alternative<IntRange>(*distribution);
    std::visit(
        [&](const auto& range) {
          if constexpr (requires { range.low; }) {
            is_log &= range.log;
            low = std::min(low.value_or(HUGE_VAL), static_cast<double>(range.low));
            high = std::max(high.value_or(-HUGE_VAL), static_cast<double>(range.high));
          }
        },
        *distribution);
  }
  json["low"] = to_json_value(low);
  json["high"] = to_json_value(high);
  json["log"] = is_log;
  json["whole"] = is_whole;
  return json;
}

/// The values that a trial reported, by step: about `most_points` at equal distances, and the last.
Json reports_json(const FrozenTrial& trial) {
  const auto& reports = trial.intermediate_values;
  const auto stride = (reports.size() - 1) / most_points + 1;
  auto json = Json::array();
  std::size_t place = 0;
  for (const auto& [step, value] : reports) {
    const bool is_drawn = place % stride == 0 || place + 1 == reports.size();
    ++place;
    if (is_drawn) json.push_back({step, to_json_value(value)});
  }
  return json;
}

}  // namespace

std::string report_page(const std::string& study_name, const std::vector<FrozenTrial>& trials,
                        const std::vector<StudyDirection>& directions,
                        const std::function<std::string(const FrozenTrial&)>& link) {
  const auto best = best_of(trials, directions);
  const auto order = best_first(trials, directions, best);
  const auto shown = thinned(order, most_shown);
  const auto is_in = [](const std::vector<std::size_t>& places, std::size_t i) {
    return std::ranges::binary_search(places, i);
  };
  const auto objectives = std::min(directions.size(), most_objectives);

  Json study{{"name", shown_text(study_name)},
             {"trials_in_all", trials.size()},
             {"best_in_all", best.size()},
             {"counts", Json::object()},
             {"times", times_json(trials)}};
  for (const auto& [state, count] : counts_of(trials)) study["counts"][std::string(state)] = count;
  for (const auto* name : {"best", "objectives", "params", "trials"}) study[name] = Json::array();
  for (std::size_t i = 0; i < std::min(best.size(), most_best); ++i)
    study["best"].push_back(trials[best[i]].number);
  std::map<std::string, double> first_importances;
  for (std::size_t k = 0; k < objectives; ++k) {
    const auto importances = param_importances(trials, directions[k], k);
    study["objectives"].push_back({{"direction", to_string(directions[k])},
                                   {"best_so_far", best_so_far_json(trials, k, directions[k])},
                                   {"importances", importances_json(importances)},
                                   {"importances_in_all", importances.size()}});
    if (k == 0) first_importances = importances;
  }
  auto names = names_by_importance(trials, first_importances);
  study["params_in_all"] = names.size();
  names.resize(std::min(names.size(), most_params));
  std::vector<bool> are_choices;
  for (const auto& name : names) {
    study["params"].push_back(param_json(trials, shown, name));
    are_choices.push_back(has_choices(trials, name));
  }
  std::vector<std::size_t> reported;
  for (const auto i : order)
    if (!trials[i].intermediate_values.empty() && is_in(shown, i)) reported.push_back(i);
  study["reports_in_all"] = std::ranges::count_if(
      trials, [](const FrozenTrial& trial) { return !trial.intermediate_values.empty(); });
  const auto curves = thinned(reported, most_curves);

  for (const auto i : order) {
    if (!is_in(shown, i)) continue;
    const auto& trial = trials[i];
    Json json{{"number", trial.number},
              {"place", i},
              {"state", state_text(trial.state)},
              {"best", is_in(best, i)},
              {"seconds", to_json_value(duration_of(trial))},
              {"values", Json::array()},
              {"params", Json::array()}};
    for (std::size_t k = 0; k < objectives; ++k) json["values"].push_back(to_json_value(value_of(trial, k)));
    for (std::size_t k = 0; k < names.size(); ++k) {
      const auto found = trial.params.find(names[k]);
      json["params"].push_back(found == trial.params.end() ? Json()
                               : are_choices[k]            ? Json(shown_text(param_text(trial, names[k])))
                                                           : to_json_value(found->second));
    }
    if (is_in(curves, i)) json["reports"] = reports_json(trial);
    if (auto address = link ? link(trial) : std::string(); !address.empty())
      json["link"] = std::move(address);
    study["trials"].push_back(std::move(json));
  }
  const auto body = fmt::format(
      "<div id=\"page\"></div>\n<noscript>This page draws its charts with JavaScript, which this browser "
      "has turned off.</noscript>\n<script type=\"application/json\" id=\"study\">{}</script>\n",
      script_json(study));
  return html_text_of({.title = study_name,
                       .styles = {study_css},
                       .body = body,
                       .scripts = {dom_js, text_js, axis_js, study_charts_js, study_js}});
}

}  // namespace etude::inline v0::detail
