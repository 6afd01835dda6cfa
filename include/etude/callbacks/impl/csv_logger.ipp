#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/csv_logger.hpp"
#include "etude/callbacks/log_file.hpp"

namespace etude {

namespace detail {

/// A row of a CSV file out of pairs of a name and a text. Names that are new become columns.
class CsvRow {
 public:
  explicit CsvRow(std::vector<std::string>& columns) : columns_(columns), fields_(columns.size()) {}

  void set(const std::string& name, std::string text) {
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    const auto place = static_cast<std::size_t>(found - columns_.begin());
    if (found == columns_.end()) {
      columns_.push_back(name);
      fields_.emplace_back();
    }
    fields_[place] = std::move(text);
  }

  std::string text() const {
    std::string line;
    for (std::size_t i = 0; i < fields_.size(); ++i) line += (i > 0 ? "," : "") + fields_[i];
    return line;
  }

 private:
  std::vector<std::string>& columns_;
  std::vector<std::string> fields_;
};

/// The text of what a log entry has, as if it were a metric.
inline std::string csv_value(const nlohmann::json& value) {
  return value.is_number_float() ? csv_number(value.get<double>())
         : value.is_string()     ? csv_field(value.get<std::string>())
                                 : csv_field(value.dump());
}

}  // namespace detail

ETUDE_INLINE void CSVLoggerCallback::on(const TrainBegin& e) {
  if (!e.state.is_world_process_zero) return;
  auto rows = detail::csv_records(detail::read_log(detail::log_path(e.args, path)));
  columns.clear();
  if (!rows.empty()) {
    columns = detail::csv_fields(rows.front());
    rows.erase(rows.begin());
  }
  if (detail::begins_anew(e.state)) {
    if (!append) columns.clear();
    rows_before = append ? static_cast<std::int64_t>(rows.size()) : 0;
  }
  rows.resize(static_cast<std::size_t>(std::clamp(rows_before, std::int64_t{0}, std::ssize(rows))));
  for (const auto& entry : e.state.log_history) {
    detail::CsvRow row(columns);
    if (const auto step = entry.find("step"); step != entry.end())
      row.set("step", detail::csv_value(step->second));
    for (const auto& [name, value] : entry) row.set(name, detail::csv_value(value));
    rows.push_back(row.text());
  }
  write_anew(e, std::move(rows));
}

ETUDE_INLINE void CSVLoggerCallback::on(const Log& e) {
  if (!e.state.is_world_process_zero) return;
  const auto file = detail::log_path(e.args, path);
  if (columns.empty())  // outside of training
    if (const auto found = detail::csv_records(detail::read_log(file)); !found.empty())
      columns = detail::csv_fields(found.front());
  const auto known = columns.size();
  detail::CsvRow row(columns);
  row.set("step", std::to_string(e.state.global_step));
  for (const auto& [name, value] : e.logs) row.set(name, detail::csv_number(value));
  if (columns.size() == known) return detail::append_to_log(e.args, file, row.text() + "\n");
  auto rows = detail::csv_records(detail::read_log(file));
  if (!rows.empty()) rows.erase(rows.begin());
  rows.push_back(row.text());
  try {
    write_anew(e, std::move(rows));
  } catch (const ArgumentError& error) {
    message(e.args, LogLevel::error, "a log could not be written: {}", error.what());
  }
}

ETUDE_INLINE void CSVLoggerCallback::write_anew(const Context& e, std::vector<std::string> rows) {
  std::string text;
  for (std::size_t i = 0; i < columns.size(); ++i) text += (i > 0 ? "," : "") + detail::csv_field(columns[i]);
  if (!columns.empty()) text += '\n';
  for (auto& row : rows) {
    const auto missing = columns.size() - std::min(columns.size(), detail::csv_fields(row).size());
    text += row.append(missing, ',') + '\n';
  }
  detail::replace_log(detail::log_path(e.args, path), text);
}

}  // namespace etude
