#include "etude/study/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "etude/report/html_page.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/trial_text.hpp"
#include "page_files.hpp"
#include "report_charts.hpp"
#include "report_parallel.hpp"

namespace etude::inline v0::detail {

namespace {

std::string definition(std::string_view name, std::string_view text) {
  return fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_text(cut_name(name, 60)),
                     html_text(cut_text(text, 120)));
}

std::string page_params(const ReportView& view, const FrozenTrial& trial) {
  std::string text = "<dl>\n";
  std::size_t count = 0;
  for (const auto& name : view.names)
    if (trial.params.contains(name) && ++count <= most_columns)
      text += definition(name, param_text(trial, name));
  return text + "</dl>\n";
}

std::string page_best(const ReportView& view) {
  if (view.best.empty()) return "<p>No trial is complete.</p>\n";
  if (view.directions.size() > 1) {
    constexpr std::size_t most = 20;
    std::string text = fmt::format("<p>{} trial{} no other beats in all values:", view.best.size(),
                                   view.best.size() == 1 ? " that" : "s that");
    for (std::size_t i = 0; i < std::min(view.best.size(), most); ++i)
      text += fmt::format("{} {}", i == 0 ? "" : ",", view.trials[view.best[i]].number);
    return text + (view.best.size() > most ? " and others" : "") + ".</p>\n";
  }
  const auto& trial = view.trials[view.best.front()];
  auto text = fmt::format("<h3>Best trial</h3>\n<dl class=\"big\">\n{}{}",
                          definition("trial", std::to_string(trial.number)),
                          definition("value", number_text(trial.values.at(0))));
  if (const auto seconds = duration_of(trial)) text += definition("time", duration_text(*seconds));
  return text + "</dl>\n" + page_params(view, trial);
}

std::string page_summary(const ReportView& view) {
  std::string text =
      "<section aria-labelledby=\"summary\"><h2 id=\"summary\">Summary</h2>\n<ul class=\"counts\">\n";
  text += fmt::format("<li><b>{}</b>trial{}</li>\n", view.trials.size(), view.trials.size() == 1 ? "" : "s");
  for (const auto state :
       {TrialState::complete, TrialState::pruned, TrialState::fail, TrialState::running, TrialState::waiting})
    if (const auto count = std::ranges::count(view.trials, state, &FrozenTrial::state); count > 0)
      text += fmt::format("<li><b>{}</b>{}</li>\n", count, state_text(state));
  text += "</ul>\n";
  std::optional<double> first, last;
  for (const auto& trial : view.trials)
    for (const auto& time : {trial.datetime_start, trial.datetime_complete}) {
      if (!time || time_text(*time).empty()) continue;
      first = std::min(first.value_or(*time), *time);
      last = std::max(last.value_or(*time), *time);
    }
  if (first)
    text += fmt::format("<p class=\"note\">From {} to {}: {}.</p>\n", time_text(*first), time_text(*last),
                        duration_text(*last - *first));
  return text + page_best(view) + "</section>\n";
}

std::string page_importances(const ReportView& view) {
  if (view.names.empty()) return {};
  std::string text =
      "<section aria-labelledby=\"importance\"><h2 id=\"importance\">Importance</h2>\n"
      "<p class=\"note\">How much each has to do with being among the best tenth of the trials "
      "(PED-ANOVA).</p>\n";
  for (std::size_t k = 0; k < view.importances.size(); ++k) {
    if (view.importances.size() > 1) text += fmt::format("<h3>value {}</h3>\n", k + 1);
    std::vector<std::pair<double, std::string>> bars;
    for (const auto& [name, importance] : view.importances[k]) bars.emplace_back(-importance, name);
    std::ranges::sort(bars);
    text += "<table class=\"bars\"><tbody>\n";
    for (std::size_t i = 0; i < std::min(bars.size(), most_bars); ++i)
      text += fmt::format(
          "<tr><th scope=\"row\" title=\"{}\">{}</th><td><i style=\"width:{:.1f}%\"></i></td><td>{:.1f} "
          "%</td></tr>\n",
          html_text(cut_text(bars[i].second, 200)), html_text(cut_name(bars[i].second, 28)),
          100 * bars[i].first / std::min(bars.front().first, -1e-9), -100 * bars[i].first);
    text += "</tbody></table>\n";
    if (bars.empty()) text += "<p>No trial is complete.</p>\n";
    if (bars.size() > most_bars)
      text += fmt::format("<p class=\"note\">And {} others.</p>\n", bars.size() - most_bars);
  }
  return text + "</section>\n";
}

/// A table cell with the number that the column is sorted by; an empty cell without a number for an unset
/// value.
std::string number_cell(const std::optional<double>& number, std::string_view text) {
  if (!number) return "<td></td>";
  const auto key = std::isnan(*number)   ? std::string("NaN")
                   : std::isinf(*number) ? std::string(*number > 0 ? "Infinity" : "-Infinity")
                                         : fmt::format("{}", *number);
  return fmt::format("<td data-v=\"{}\">{}</td>", key, html_text(text));
}

std::string param_cell(const FrozenTrial& trial, const std::string& name) {
  const auto found = trial.params.find(name);
  if (found == trial.params.end()) return "<td></td>";
  const auto text = param_text(trial, name);
  const auto distribution = trial.distributions.find(name);
  if (distribution == trial.distributions.end() || !std::holds_alternative<Choices>(distribution->second))
    return number_cell(found->second, text);
  constexpr std::size_t most = 40;
  const auto short_text = cut_text(text, most);
  const auto title =
      short_text == text ? std::string() : fmt::format(" title=\"{}\"", html_text(cut_text(text, 300)));
  return fmt::format("<td class=\"w\"{}>{}</td>", title, html_text(short_text));
}

std::string trial_cell(const FrozenTrial& trial, bool is_best, const std::string& link) {
  auto number = std::to_string(trial.number);
  if (!link.empty()) number = fmt::format("<a href=\"{}\">{}</a>", html_text(link), number);
  return fmt::format("<td data-v=\"{}\">{}{}</td>", trial.number, is_best ? "\xE2\x98\x85 " : "", number);
}

std::string page_table(const ReportView& view, const std::function<std::string(const FrozenTrial&)>& link) {
  std::string text =
      "<section aria-labelledby=\"trials\"><h2 id=\"trials\">Trials</h2>\n<div class=\"wide all\" "
      "tabindex=\"0\" "
      "role=\"region\" aria-labelledby=\"trials\"><table>\n<thead><tr>";
  const auto head = [&](std::string_view title, std::string_view style = {}) {
    text += fmt::format("<th scope=\"col\"{}><button title=\"{}\">{}</button></th>", style,
                        html_text(cut_text(title, 200)), html_text(cut_name(title, 28)));
  };
  const auto objectives = std::min(view.directions.size(), most_objectives);
  const auto columns = std::min(view.names.size(), most_columns);
  head("trial");
  head("state", " class=\"w\"");
  for (std::size_t k = 0; k < objectives; ++k) head(objective_title(view, k));
  head("time");
  for (std::size_t k = 0; k < columns; ++k)
    head(view.names[k], has_choices(view.trials, view.names[k]) ? " class=\"w\"" : "");
  text += "</tr></thead>\n<tbody>\n";
  for (const auto i : view.order) {
    if (!std::ranges::binary_search(view.shown, i)) continue;
    const auto& trial = view.trials[i];
    text += fmt::format("<tr data-t=\"{}\"{}>{}<td class=\"w\">{}</td>", trial.number,
                        view.is_best(i) ? " class=\"top\"" : "",
                        trial_cell(trial, view.is_best(i), link ? link(trial) : std::string()),
                        state_text(trial.state));
    for (std::size_t k = 0; k < objectives; ++k) {
      const auto value = value_of(trial, k);
      text += number_cell(value, value ? number_text(*value) : "");
    }
    const auto seconds = duration_of(trial);
    text += number_cell(seconds, seconds ? duration_text(*seconds) : "");
    for (std::size_t k = 0; k < columns; ++k) text += param_cell(trial, view.names[k]);
    text += "</tr>\n";
  }
  text += "</tbody></table></div>\n";
  if (columns < view.names.size())
    text += fmt::format("<p class=\"note\">{} of {} hyperparameters are shown, the most important.</p>\n",
                        columns, view.names.size());
  return text + "</section>\n";
}

std::string page_section(std::string_view id, std::string_view title, const std::string& content) {
  if (content.empty()) return {};
  return fmt::format(
      "<section class=\"{0}\" aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n{2}</section>\n", id, title,
      content);
}

}  // namespace

std::string report_page(const std::string& study_name, const std::vector<FrozenTrial>& trials,
                        const std::vector<StudyDirection>& directions,
                        const std::function<std::string(const FrozenTrial&)>& link) {
  ReportView view{.trials = trials, .directions = directions, .best = best_of(trials, directions)};
  view.order = best_first(trials, directions, view.best);
  view.shown = thinned(view.order, most_shown);
  for (std::size_t k = 0; k < std::min(directions.size(), most_objectives); ++k)
    view.importances.push_back(param_importances(trials, directions[k], k));
  view.names = names_by_importance(
      trials, view.importances.empty() ? std::map<std::string, double>() : view.importances.front());

  auto page = fmt::format("<h1>{}</h1>\n", html_text(cut_text(study_name, 200)));
  if (view.shown.size() < trials.size())
    page += fmt::format(
        "<p class=\"lead\">{} of {} trials are drawn and listed: the best {}, and others at equal distances. "
        "Counts, "
        "importances and the best so far are of all.</p>\n",
        view.shown.size(), trials.size(), most_shown / 2);
  page += page_summary(view) + "<div class=\"two\">\n";
  std::string values;
  if (directions.size() == 2) {
    values = page_section("front", "Pareto front", pareto_chart(view));
  } else {
    for (std::size_t k = 0; k < std::min(directions.size(), most_objectives); ++k)
      values += history_chart(view, k);
    values = page_section("history", "Optimisation history", values);
  }
  page += values + page_importances(view) + "</div>\n";
  if (!directions.empty()) {
    page += page_section("parallel", "Hyperparameters", parallel_chart(view));
    page += page_section("curves", "Curves", curves_chart(view));
  }
  page += page_table(view, link);
  page += "<p id=\"chosen\" role=\"status\" aria-live=\"polite\"></p>\n";
  return html_text_of({.title = study_name, .styles = {study_css}, .body = page, .scripts = {study_js}});
}

}  // namespace etude::inline v0::detail
