#include "etude/base/progress_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/text_columns.hpp"

namespace etude::inline v0 {

std::string clock_text(double seconds) {
  constexpr double most = 1e6 * 3600;
  const auto s = static_cast<std::int64_t>(seconds > 0 ? std::min(seconds, most) : 0.0);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{:02}:{:02}", s / 60, s % 60);
}

namespace detail {

namespace {

/// A part of a line. When the line is too narrow, the parts with the greatest `rank` are left out first.
struct ProgressPart {
  std::string label = {}, value = {};  // separated by a space if neither is empty
  std::size_t gap = 2;                 // columns before it
  int rank = 0;
  std::string_view color = {};  // the value's color
  bool is_bar = false;

  std::size_t columns() const {
    return gap + columns_of(label) + columns_of(value) + (label.empty() || value.empty() ? 0 : 1);
  }
};

}  // namespace

namespace progress_color {
namespace {

constexpr std::string_view bold = "1", dim = "2", green = "32", yellow = "33", cyan = "36";

}  // namespace
}

namespace {

/// How many of a bar's equal `parts` are done, rounded down, so only a finished bar shows 100 %.
double parts_done(const ProgressView& bar, double parts) {
  if (!bar.total || *bar.total <= 0) return parts;
  return std::clamp(std::floor(parts * static_cast<double>(bar.done) / static_cast<double>(*bar.total)), 0.0,
                    parts);
}

std::string rate_text(double rate) {
  if (rate >= 1000) return fmt::format("{:.0f} it/s", rate);
  if (rate >= 1) return fmt::format("{:.1f} it/s", rate);
  return fmt::format("{:.1f} s/it", 1 / rate);
}

constexpr int bar_rank = 1, time_left_rank = 100, first_field_rank = 101, count_rank = 102, rate_rank = 103,
              elapsed_rank = 104, fields_rank = 105, outer_fields_rank = 1000;

/// Adds the parts of the bar that is drawn in full.
void add_parts(std::vector<ProgressPart>& parts, const ProgressView& bar, bool has_outer) {
  const bool is_known = bar.total.has_value();
  parts.push_back(
      {.value = plain_text(bar.title), .gap = has_outer ? 1U : 0U, .rank = 0, .color = progress_color::bold});
  if (is_known) {
    parts.push_back({.value = fmt::format("{:3.0f}%", parts_done(bar, 100)), .gap = 1, .rank = 0});
    parts.push_back({.gap = 1, .rank = bar_rank, .is_bar = true});
  }
  parts.push_back(
      {.value = is_known ? fmt::format("{}/{}", bar.done, *bar.total) : fmt::format("{}", bar.done),
       .gap = is_known ? 2U : 1U,
       .rank = is_known ? count_rank : 0});
  if (bar.rate > 0) parts.push_back({.value = rate_text(bar.rate), .rank = rate_rank});
  parts.push_back({.value = clock_text(bar.elapsed), .rank = elapsed_rank});
  if (bar.left && bar.state == ProgressView::State::running)
    parts.push_back({.label = "eta", .value = clock_text(*bar.left), .rank = time_left_rank});
  int rank = fields_rank;
  for (std::size_t i = 0; i < bar.fields.size(); ++i)
    if (const auto& [name, value] = bar.fields[i]; !value.empty())
      parts.push_back({.label = plain_text(name),
                       .value = plain_text(value),
                       .rank = i == 0 ? first_field_rank : rank++});
}

/// Adds the parts of a bar that contains another: title and percentage, and fields where there is room.
void add_outer_parts(std::vector<ProgressPart>& parts, const ProgressView& bar, int distance, bool unicode,
                     bool is_first) {
  const int rank = bar_rank + distance;
  const std::size_t gap = is_first ? 0 : 1;
  auto head = plain_text(bar.title);
  if (bar.total)
    head += fmt::format(" {:3.0f}%", parts_done(bar, 100));
  else
    head += fmt::format(" {}", bar.done);
  parts.push_back({.value = head, .gap = gap, .rank = rank});
  int field_rank = outer_fields_rank + distance;
  for (const auto& [name, value] : bar.fields) {
    field_rank += 10;
    if (!value.empty())
      parts.push_back({.label = plain_text(name), .value = plain_text(value), .rank = field_rank});
  }
  parts.push_back(
      {.value = unicode ? "\xE2\x80\xBA" : ">", .gap = 1, .rank = rank, .color = progress_color::dim});
}

std::string colored(std::string_view text, std::string_view color, bool on) {
  return on && !color.empty() && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", color, text)
                                               : std::string(text);
}

/// The drawn part of a bar, in eighths of a column; in ASCII, whole columns between two edges.
std::string drawn_bar(const ProgressView& bar, std::size_t cells, const TerminalStyle& style) {
  static constexpr std::array eighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto filled = static_cast<std::size_t>(parts_done(bar, static_cast<double>(cells * 8)));
  const std::string_view part = style.unicode ? eighths[filled % 8] : "";
  const auto left = cells - filled / 8 - (part.empty() ? 0 : 1);
  std::string done, track;
  for (std::size_t i = 0; i < filled / 8; ++i) done += style.unicode ? "█" : "#";
  for (std::size_t i = 0; i < left; ++i) track += style.unicode ? "─" : " ";
  const auto color = bar.state == ProgressView::State::complete  ? progress_color::green
                     : bar.state == ProgressView::State::stopped ? progress_color::yellow
                                                                 : progress_color::cyan;
  const auto drawn = colored(done.append(part), color, style.colors);
  return style.unicode ? drawn + colored(track, progress_color::dim, style.colors)
                       : "|" + drawn + track + "|";
}

/// The minimum width of the bar in a line that has parts of this rank.
std::size_t fewest_cells(int rank) { return rank < count_rank ? 4 : rank < outer_fields_rank ? 12 : 24; }

}  // namespace

std::string progress_line(std::span<const ProgressView> bars, const TerminalStyle& style) {
  constexpr std::size_t most_cells = 40;
  const auto width = static_cast<std::size_t>(std::max(style.columns, 0));
  const std::size_t edges = style.unicode ? 0 : 2;
  std::vector<ProgressPart> parts;
  for (std::size_t i = 0; i + 1 < bars.size(); ++i)
    add_outer_parts(parts, bars[i], static_cast<int>(bars.size() - 1 - i), style.unicode, i == 0);
  add_parts(parts, bars.back(), bars.size() > 1);

  const auto columns_until = [&](int rank) {
    std::size_t columns = 0, first_gap = 0;
    for (const auto& part : parts)
      if (part.rank <= rank) {
        if (columns == 0) first_gap = part.gap;
        columns += part.columns() + (part.is_bar ? fewest_cells(rank) + edges : 0);
      }
    return columns - first_gap;
  };
  std::vector<int> ranks;
  for (const auto& part : parts) ranks.push_back(part.rank);
  std::ranges::sort(ranks);
  int most = 0;
  for (const int rank : ranks)
    if (columns_until(rank) <= width)
      most = rank;
    else
      break;
  const auto used = columns_until(most);
  const std::size_t cells = std::min(most_cells, fewest_cells(most) + (width > used ? width - used : 0));

  std::string line;
  std::size_t room = width;
  bool is_first = true;
  for (const auto& part : parts) {
    if (part.rank > most) continue;
    const bool begins = std::exchange(is_first, false);
    // A title that is too long is cut, and the percentage left out.
    if (!begins && !part.is_bar && part.columns() > room) break;
    const std::size_t gap = begins ? 0 : part.gap;
    line.append(gap, ' ');
    room -= gap;
    if (part.is_bar) {
      line += drawn_bar(bars.back(), cells, style);
      room -= std::min(room, cells + edges);
      continue;
    }
    if (!part.label.empty()) {
      line += colored(part.label, progress_color::dim, style.colors) + " ";
      room -= std::min(room, columns_of(part.label) + 1);
    }
    const auto value = first_columns(part.value, room);
    line += colored(value, part.color, style.colors);
    room -= columns_of(value);
  }
  return line;
}

std::string plain_progress_line(const ProgressView& bar) {
  std::vector<ProgressPart> parts;
  add_parts(parts, bar, false);
  std::string line;
  for (const auto& part : parts) {
    if (part.is_bar) continue;
    line.append(part.gap, ' ');
    line += part.label;
    if (!part.label.empty()) line += ' ';
    line += part.value;
  }
  return line;
}

}  // namespace detail
}  // namespace etude::inline v0
