#include "etude/callbacks/file_logger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/base/read_file.hpp"
#include "etude/callbacks/csv_text.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// One log: its names and values, in the order of the file.
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

/// A format of log files: its rows, without line ends, and the text before them.
class LogFormat {
 public:
  LogFormat() = default;
  LogFormat(const LogFormat&) = delete;
  LogFormat& operator=(const LogFormat&) = delete;
  virtual ~LogFormat() = default;

  /// The rows of a file, without an incomplete last one.
  virtual std::vector<std::string> rows(std::string_view text) const = 0;

  /// The text of a row, whose names become columns if the format has columns.
  virtual std::string row(const LogFields& fields) = 0;

  virtual bool lacks_columns() const { return false; }
  virtual std::size_t column_count() const { return 0; }
  virtual void take_columns(std::string_view /*text*/) {}  ///< takes the columns of a file

  /// The text of a whole file.
  virtual std::string file(std::vector<std::string> rows) const {
    std::string text;
    for (const auto& row : rows) text += row + '\n';
    return text;
  }
};

class CsvFormat final : public LogFormat {
 public:
  explicit CsvFormat(std::vector<std::string> columns) : columns_(std::move(columns)) {}

  const std::vector<std::string>& columns() const { return columns_; }

  std::vector<std::string> rows(std::string_view text) const override {
    auto records = csv_records(text);
    if (!records.empty()) records.erase(records.begin());
    return records;
  }

  std::string row(const LogFields& fields) override {
    std::vector<std::string> values(columns_.size());
    for (const auto& [name, value] : fields) {
      const auto found = std::find(columns_.begin(), columns_.end(), name);
      const auto place = static_cast<std::size_t>(found - columns_.begin());
      if (found == columns_.end()) {
        columns_.push_back(name);
        values.emplace_back();
      }
      values[place] = value.is_number_float() ? csv_number(value.get<double>())
                      : value.is_string()     ? csv_field(value.get<std::string>())
                                              : csv_field(value.dump());
    }
    return joined(values);
  }

  bool lacks_columns() const override { return columns_.empty(); }
  std::size_t column_count() const override { return columns_.size(); }
  void take_columns(std::string_view text) override {
    const auto records = csv_records(text);
    columns_ = records.empty() ? std::vector<std::string>() : csv_fields(records.front());
  }

  std::string file(std::vector<std::string> rows) const override {
    std::vector<std::string> names;
    for (const auto& name : columns_) names.push_back(csv_field(name));
    if (!columns_.empty()) rows.insert(rows.begin(), joined(names));
    for (auto& row : rows)
      row.append(columns_.size() - std::min(columns_.size(), csv_fields(row).size()), ',');
    return LogFormat::file(std::move(rows));
  }

 private:
  static std::string joined(const std::vector<std::string>& fields) {
    std::string line;
    for (std::size_t i = 0; i < fields.size(); ++i) line += (i > 0 ? "," : "") + fields[i];
    return line;
  }

  std::vector<std::string> columns_;
};

class JsonLinesFormat final : public LogFormat {
 public:
  std::vector<std::string> rows(std::string_view text) const override {
    std::vector<std::string> lines;
    for (std::size_t end = 0; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
      lines.emplace_back(text.substr(0, end));
    return lines;
  }

  std::string row(const LogFields& fields) override {
    nlohmann::ordered_json line;
    for (const auto& [name, value] : fields)
      line[name] =
          value.is_number_float() ? to_json_value(value.get<double>()) : nlohmann::ordered_json(value);
    return line.dump();
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
  // The next log would continue an incomplete line.
  if (file != nullptr) std::filesystem::resize_file(path, is_new ? 0 : size, ignored);
}

/// Restores the file to the rows of earlier trainings and those of `state.log_history`, and returns the
/// number of rows of earlier trainings.
std::int64_t begin_log_file(const TrainBegin& e, LogFormat& format, const std::string& path, bool append,
                            std::int64_t rows_before) {
  if (!e.state.is_world_process_zero) return rows_before;
  const auto file = log_path(e.args, path);
  const auto text = read_file(file).value_or("");
  auto rows = format.rows(text);
  const bool is_new = starts_from_scratch(e.state);
  format.take_columns(is_new && !append ? std::string_view() : text);
  if (is_new) rows_before = append ? std::ssize(rows) : 0;
  rows.resize(static_cast<std::size_t>(std::clamp(rows_before, std::int64_t{0}, std::ssize(rows))));
  for (const auto& entry : e.state.log_history) rows.push_back(format.row(fields_of(entry)));
  replace_log(file, format.file(std::move(rows)));
  return rows_before;
}

/// Appends a row, or rewrites the file if the row has new columns.
void add_to_log_file(const Log& e, LogFormat& format, const std::string& path) {
  if (!e.state.is_world_process_zero) return;
  const auto file = log_path(e.args, path);
  if (format.lacks_columns())
    format.take_columns(read_file(file).value_or(""));  // in an evaluation outside of training
  const auto known = format.column_count();
  auto row = format.row(fields_of(e));
  if (format.column_count() == known) return append_to_log(e.args, file, row + "\n");
  auto rows = format.rows(read_file(file).value_or(""));
  rows.push_back(std::move(row));
  try {
    replace_log(file, format.file(std::move(rows)));
  } catch (const ArgumentError& error) {
    message(e.args, LogLevel::error, "a log could not be written: {}", error.what());
  }
}

}  // namespace

}  // namespace detail

void CSVLoggerCallback::on(const TrainBegin& e) {
  detail::CsvFormat format(std::move(columns));
  rows_before = detail::begin_log_file(e, format, path, append, rows_before);
  columns = format.columns();
}
void CSVLoggerCallback::on(const Log& e) {
  detail::CsvFormat format(std::move(columns));
  detail::add_to_log_file(e, format, path);
  columns = format.columns();
}

void JSONLinesLoggerCallback::on(const TrainBegin& e) {
  detail::JsonLinesFormat format;
  lines_before = detail::begin_log_file(e, format, path, append, lines_before);
}
void JSONLinesLoggerCallback::on(const Log& e) {
  detail::JsonLinesFormat format;
  detail::add_to_log_file(e, format, path);
}

}  // namespace etude::inline v0
