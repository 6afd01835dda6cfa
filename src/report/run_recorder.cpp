#include "etude/report/run_recorder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/utf8.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {

namespace {

/// A confusion matrix's entry in a log, such as "eval_confusion_2_0".
struct MatrixEntry {
  std::string_view name;
  std::size_t row, column;
};

std::optional<MatrixEntry> matrix_entry(std::string_view name) {
  const auto second = name.rfind('_');
  if (second == name.npos || second == 0) return std::nullopt;
  const auto first = name.rfind('_', second - 1);
  if (first == name.npos || first == 0) return std::nullopt;
  const auto number = [](std::string_view text) -> std::optional<std::size_t> {
    constexpr std::size_t most_digits = 4;
    if (text.size() > most_digits || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
    return read_number<std::size_t>(text);
  };
  const auto row = number(name.substr(first + 1, second - first - 1)),
             column = number(name.substr(second + 1));
  if (!row || !column) return std::nullopt;
  return MatrixEntry{name.substr(0, first), *row, *column};
}

/// The complete confusion matrices in a log.
std::vector<ReportMatrix> matrices_in(std::int64_t step,
                                      std::span<const std::pair<std::string, double>> logs) {
  std::map<std::string_view, std::map<std::pair<std::size_t, std::size_t>, double>> found;
  for (const auto& [name, value] : logs)
    if (const auto entry = matrix_entry(name)) found[entry->name][{entry->row, entry->column}] = value;
  std::vector<ReportMatrix> matrices;
  for (const auto& [name, entries] : found) {
    const auto size = entries.rbegin()->first.first + 1;
    if (size < 2 || entries.size() != size * size) continue;
    if (std::ranges::any_of(entries, [&](const auto& entry) { return entry.first.second >= size; })) continue;
    ReportMatrix matrix{.name = std::string(name), .step = step, .rows = {}, .classes = {}};
    matrix.rows.assign(size, std::vector<double>(size));
    for (const auto& [place, value] : entries) matrix.rows[place.first][place.second] = value;
    matrices.push_back(std::move(matrix));
  }
  return matrices;
}

}  // namespace

void RunRecorder::log(std::int64_t step, std::span<const std::pair<std::string, double>> logs) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(logs, [&](const auto& entry) { return entry.first == name; });
  };
  const bool is_summary =
      has("train_runtime") && !has("loss");  // logs of steps have both if tokens are counted
  const auto matrices = matrices_in(step, logs);
  for (const auto& matrix : matrices) {
    std::erase_if(run.matrices, [&](const ReportMatrix& each) { return each.name == matrix.name; });
    run.matrices.push_back(matrix);
  }
  if (is_summary) summed_up_at_ = step;
  const bool is_afterwards = !is_summary && summed_up_at_ && step <= *summed_up_at_;
  for (const auto& [name, value] : logs) {
    const auto entry = matrix_entry(name);
    const bool is_in_matrix = entry && std::ranges::any_of(matrices, [&](const ReportMatrix& matrix) {
                                return matrix.name == entry->name;
                              });
    if (is_in_matrix) continue;
    if (!is_summary && !is_afterwards)
      add(step, name, value);
    else if (name != "epoch")
      (is_summary ? run.summary : run.afterwards)[name] = value;
  }
}

std::size_t RunRecorder::points_each() const {
  return std::min(most_points, most_points_of_all / std::max<std::size_t>(series_.size(), 1));
}

void RunRecorder::add(std::int64_t step, const std::string& name, double value) {
  auto found = places_.find(name);
  if (found == places_.end()) {
    if (series_.size() == most_series) {
      // The number of names left out is also limited, so that a program that keeps inventing names doesn't
      // fill the memory.
      if (left_out_.size() < most_series && left_out_.insert(name).second) ++run.series_left_out;
      return;
    }
    found = places_.emplace(name, series_.size()).first;
    series_.emplace_back(name, Series());
    for (auto& [its_name, each] : series_) each.limit(points_each());
  }
  series_[found->second].second.add(step, value);
}

double RunRecorder::last(const std::string& name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) return 0;
  const auto& points = series_[found->second].second.points();
  return points.empty() || points.back().count == 0 ? 0 : points.back().high;
}

void RunRecorder::mark(ReportMarkKind kind, std::int64_t step, double time, std::string_view text) {
  if (run.marks.size() == most_marks) run.marks.erase(run.marks.begin() + 1);
  run.marks.push_back(
      {.kind = kind, .step = step, .time = time, .text = mended_utf8(text.substr(0, most_text))});
}

void RunRecorder::add(ReportSample sample, std::size_t kept_steps, std::size_t kept_bytes) {
  if (sample.kind == ReportSampleKind::text && sample.content.size() > most_text) {
    // A character has at most 4 bytes; the bytes of the last one may be cut off.
    auto end = most_text;
    while (end > most_text - 4 && (static_cast<unsigned char>(sample.content[end]) & 0xC0) == 0x80) --end;
    sample.content.resize(end);
    sample.is_cut = true;
  } else if (sample.kind != ReportSampleKind::text && sample.content.size() > kept_bytes / 4) {
    sample.content.clear();
    sample.is_cut = true;
  }
  std::erase_if(run.samples, [&](const ReportSample& each) {
    return each.step == sample.step && each.name == sample.name && each.kind == sample.kind;
  });
  run.samples.push_back(std::move(sample));
  std::set<std::int64_t> steps;
  std::size_t bytes = 0, kept = 0;
  for (auto each = run.samples.rbegin(); each != run.samples.rend(); ++each, ++kept) {
    steps.insert(each->step);
    bytes += each->content.size() + each->caption.size() + each->name.size();
    if (steps.size() > kept_steps || bytes > kept_bytes) break;
  }
  run.samples.erase(run.samples.begin(), run.samples.end() - static_cast<std::ptrdiff_t>(kept));
}

void RunRecorder::take(const RunReport& earlier, std::int64_t last_step) {
  run.began = earlier.began;
  for (const auto& mark : earlier.marks)
    if (mark.step <= last_step && mark.kind != ReportMarkKind::ended) run.marks.push_back(mark);
  for (const auto& sample : earlier.samples)
    if (sample.step <= last_step) run.samples.push_back(sample);
  if (!run.learning_rates) run.learning_rates = earlier.learning_rates;
  for (const auto& columns : earlier.series) {
    if (!columns.name.starts_with("report/")) continue;
    auto series = Series::of(columns, last_step);
    series.limit(points_each());
    places_[columns.name] = series_.size();
    series_.emplace_back(columns.name, std::move(series));
  }
}

RunReport RunRecorder::report() const {
  auto report = run;
  for (const auto& [name, series] : series_) report.series.push_back(series.columns(name));
  return report;
}

}  // namespace etude::inline v0::detail
