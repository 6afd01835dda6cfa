#include "etude/callbacks/file_logger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/base/read_file.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The names and values of one log, in the order of the file.
using LogFields = std::vector<std::pair<std::string, nlohmann::json>>;

LogFields fields_of(const Log& e) {
  LogFields fields;
  fields.emplace_back("step", e.state.global_step);
  for (const auto& [name, value] : e.logs) fields.emplace_back(name, value);
  return fields;
}

LogFields fields_of(const LogEntry& entry) {
  LogFields fields;
  if (const auto step = entry.find("step"); step != entry.end()) fields.emplace_back("step", step->second);
  for (const auto& [name, value] : entry) fields.emplace_back(name, value);
  return fields;
}

/// Rows of CSV files, without line ends. The names in a row become columns.
struct CsvFormat {
  std::vector<std::string>& columns;

  /// The rows of a file, without an incomplete last one.
  static std::vector<std::string> rows(std::string_view text) {
    auto records = csv_records(text);
    if (!records.empty()) records.erase(records.begin());
    return records;
  }
  void take_columns(std::string_view text) const {
    const auto records = csv_records(text);
    columns = records.empty() ? std::vector<std::string>() : csv_fields(records.front());
  }
  std::string row(const LogFields& fields) const {
    std::vector<std::string> values(columns.size());
    for (const auto& [name, value] : fields) {
      const auto found = std::find(columns.begin(), columns.end(), name);
      const auto place = static_cast<std::size_t>(found - columns.begin());
      if (found == columns.end()) {
        columns.push_back(name);
        values.emplace_back();
      }
      values[place] = value.is_number_float() ? csv_number(value.get<double>())
                      : value.is_string()     ? csv_field(value.get<std::string>())
                                              : csv_field(value.dump());
    }
    return csv_record(values);
  }
  /// The text of a whole file.
  std::string file(const std::vector<std::string>& rows) const {
    std::vector<std::string> names;
    for (const auto& name : columns) names.push_back(csv_field(name));
    std::string text = columns.empty() ? "" : csv_record(names) + '\n';
    for (const auto& row : rows)
      text +=
          row + std::string(columns.size() - std::min(columns.size(), csv_fields(row).size()), ',') + '\n';
    return text;
  }
};

/// The same for JSON lines, which have no columns.
struct JsonLinesFormat {
  static std::vector<std::string> rows(std::string_view text) {
    std::vector<std::string> lines;
    for (std::size_t end = 0; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
      lines.emplace_back(text.substr(0, end));
    return lines;
  }
  static void take_columns(std::string_view) {}
  static std::string row(const LogFields& fields) {
    nlohmann::ordered_json line;
    for (const auto& [name, value] : fields)
      line[name] =
          value.is_number_float() ? to_json_value(value.get<double>()) : nlohmann::ordered_json(value);
    return line.dump();
  }
  static std::string file(const std::vector<std::string>& rows) {
    std::string text;
    for (const auto& row : rows) text += row + '\n';
    return text;
  }
};

/// Replaces the file with `text` atomically. Throws ArgumentError if it can't be written.
void replace_log(const std::filesystem::path& path, std::string_view text) {
  try {
    auto& files = default_file_system();
    files.create_directories(path.parent_path());
    write_file(files, path, text);
  } catch (const CheckpointError& error) {
    throw ArgumentError(fmt::format("path is {}: {}", path.string(), error.what()));
  }
}

/// Appends `text`. An error is reported and doesn't end the training.
void append_to_log(const TrainingArguments& args, const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::error_code is_new;
  const auto size = std::filesystem::file_size(path, is_new);
  std::FILE* file = std::fopen(path.c_str(), "ab");
  bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) != 0) written = false;
  if (written) return;
  message(args, LogLevel::error, "a log could not be written to {}: {}", path.string(),
          std::generic_category().message(errno));
  // Otherwise the next log would continue an incomplete line.
  if (file != nullptr) std::filesystem::resize_file(path, is_new ? 0 : size, ignored);
}

/// Restores the file to the first `rows_before` rows, which earlier trainings wrote, and the rows of
/// `state.log_history`.
template <class Format>
void begin_log_file(const TrainBegin& e, const Format& format, const std::string& path, bool append,
                    std::int64_t& rows_before) {
  if (!e.state.is_world_process_zero) return;
  const auto file = log_path(e.args, path);
  const auto text = read_file(file).value_or("");
  auto rows = format.rows(text);
  const bool is_new = starts_from_scratch(e.state);
  format.take_columns(is_new && !append ? std::string_view() : text);
  if (is_new) rows_before = append ? std::ssize(rows) : 0;
  rows.resize(static_cast<std::size_t>(std::clamp(rows_before, std::int64_t{0}, std::ssize(rows))));
  for (const auto& entry : e.state.log_history) rows.push_back(format.row(fields_of(entry)));
  replace_log(file, format.file(rows));
}

}  // namespace
}  // namespace detail

void CSVLoggerCallback::on(const TrainBegin& e) {
  detail::begin_log_file(e, detail::CsvFormat{columns}, path, append, state.rows_before);
}

void CSVLoggerCallback::on(const Log& e) {
  if (!e.state.is_world_process_zero) return;
  const auto file = detail::log_path(e.args, path);
  const detail::CsvFormat format{columns};
  // In an evaluation outside of training, the file's columns aren't known yet.
  if (columns.empty()) format.take_columns(detail::read_file(file).value_or(""));
  const auto known = columns.size();
  auto row = format.row(detail::fields_of(e));
  if (columns.size() == known) return detail::append_to_log(e.args, file, row + "\n");
  auto rows = format.rows(detail::read_file(file).value_or(""));
  rows.push_back(std::move(row));
  try {
    detail::replace_log(file, format.file(rows));
  } catch (const ArgumentError& error) {
    message(e.args, LogLevel::error, "a log could not be written: {}", error.what());
  }
}

void JSONLinesLoggerCallback::on(const TrainBegin& e) {
  detail::begin_log_file(e, detail::JsonLinesFormat(), path, append, state.lines_before);
}

void JSONLinesLoggerCallback::on(const Log& e) {
  if (e.state.is_world_process_zero)
    detail::append_to_log(e.args, detail::log_path(e.args, path),
                          detail::JsonLinesFormat::row(detail::fields_of(e)) + "\n");
}

}  // namespace etude::inline v0
