#include "etude/study/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "etude/io/file_system.hpp"
#include "etude/study/importance.hpp"
#include "etude/study/report_page.hpp"
#include "etude/study/trial_text.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// A column of a table: its title, then one text per row.
struct TextColumn {
  std::string title;
  std::vector<std::string> cells;
  bool is_number = false;
  std::size_t width = 0, least = 0;  ///< `least` is the width of numbers, which can't be cut

  TextColumn(std::string its_title, std::vector<std::string> its_cells, bool has_numbers)
      : title(std::move(its_title)), cells(std::move(its_cells)), is_number(has_numbers) {
    for (const auto& cell : cells) width = std::max(width, columns_of(cell));
    if (is_number) least = width;
    width = std::max(width, columns_of(title));
  }
  void limit(std::size_t most) {
    width = limited(most);
    title = cut_name(title, width);
    for (auto& cell : cells) cell = cut_text(cell, width);
  }
  std::size_t limited(std::size_t most) const { return std::max(std::min(width, most), least); }
  std::string padded(const std::string& text) const {
    const std::string space(width - std::min(columns_of(text), width), ' ');
    return is_number ? space + text : text + space;
  }
};

constexpr std::size_t table_width = 110, table_gap = 2;

/// The total width of the columns if none is wider than `most`.
std::size_t width_of(const std::vector<TextColumn>& columns, std::size_t most) {
  std::size_t width = 0;
  for (const auto& column : columns) width += column.limited(most) + (width == 0 ? 0 : table_gap);
  return width;
}

/// A line cut to at most this many columns.
std::string table_line(const std::string& text) { return cut_text(text, table_width) + "\n"; }

}  // namespace

}  // namespace detail

std::string format_trials(const std::vector<FrozenTrial>& trials,
                          const std::vector<StudyDirection>& directions) {
  using detail::TextColumn;
  const auto best = detail::best_of(trials, directions);
  const auto order = detail::best_first(trials, directions, best);
  constexpr std::size_t widest = 24, narrowest = 8, most_objectives = 4;
  const auto column = [&](const std::string& title, bool is_number, auto text_of) {
    std::vector<std::string> cells;
    for (const auto i : order) cells.push_back(detail::cut_text(text_of(trials[i]), widest));
    return TextColumn(detail::cut_name(title, widest), std::move(cells), is_number);
  };
  std::vector<TextColumn> columns{
      column("trial", true, [](const auto& trial) { return fmt::format("{}", trial.number); }),
      column("state", false, [](const auto& trial) { return std::string(detail::state_text(trial.state)); })};
  for (std::size_t k = 0; k < std::min(directions.size(), most_objectives); ++k)
    columns.push_back(column(directions.size() == 1 ? "value" : fmt::format("value {}", k + 1), true,
                             [&](const auto& trial) {
                               const auto value = detail::value_of(trial, k);
                               return value ? detail::number_text(*value) : std::string();
                             }));
  auto times = column("time", true, [](const auto& trial) {
    const auto seconds = detail::duration_of(trial);
    return seconds ? detail::duration_text(*seconds) : std::string();
  });
  if (std::ranges::any_of(times.cells, [](const auto& cell) { return !cell.empty(); }))
    columns.push_back(std::move(times));

  const auto importances =
      directions.empty() ? std::map<std::string, double>() : param_importances(trials, directions[0]);
  const auto names = detail::names_by_importance(trials, importances);
  const auto fixed = columns.size();
  // More columns than a third of the width can't fit in any case.
  for (std::size_t i = 0; i < std::min(names.size(), detail::table_width / 3); ++i)
    columns.push_back(column(names[i], !detail::has_choices(trials, names[i]), [&](const auto& trial) {
      constexpr int digits = 4;
      return detail::param_text(trial, names[i], digits);
    }));
  const auto room = detail::table_width - 2;  // to the right of the "*" that marks the best
  auto most = widest;
  while (detail::width_of(columns, most) > room && most > narrowest) --most;
  while (detail::width_of(columns, most) > room && columns.size() > fixed) columns.pop_back();
  for (auto& each : columns) each.limit(most);
  const auto shown = columns.size() - fixed;

  auto text = fmt::format("{} trial{}", trials.size(), trials.size() == 1 ? "" : "s");
  std::string_view separator = ": ";
  for (const auto& [state, count] : detail::counts_of(trials))
    text += fmt::format("{}{} {}", std::exchange(separator, ", "), count, state);
  if (best.size() == 1)
    text += fmt::format(". Best: trial {}", trials[best[0]].number);
  else if (!best.empty())
    text += fmt::format(". Best: {} trials that no other beats in all values", best.size());
  text = detail::table_line(text) + "\n";
  const auto add = [&](std::string line, auto text_of) {
    for (const auto& each : columns) line += (line.size() == 1 ? " " : "  ") + each.padded(text_of(each));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add(" ", [](const TextColumn& each) { return each.title; });
  for (std::size_t row = 0; row < trials.size(); ++row)
    add(std::ranges::binary_search(best, order[row]) ? "*" : " ",
        [&](const TextColumn& each) { return each.cells[row]; });
  if (shown < names.size()) {
    const std::vector<std::string> others(names.begin() + static_cast<std::ptrdiff_t>(shown), names.end());
    text += "\n" + detail::table_line(fmt::format("{} more hyperparameter{}: {}", others.size(),
                                                  others.size() == 1 ? "" : "s", fmt::join(others, ", ")));
  }
  return text;
}

void write_report(const std::filesystem::path& page, const std::string& study_name,
                  const std::vector<FrozenTrial>& trials, const std::vector<StudyDirection>& directions,
                  const std::function<std::string(const FrozenTrial&)>& link) {
  write_file(default_file_system(), page, detail::report_page(study_name, trials, directions, link));
}

}  // namespace etude::inline v0
