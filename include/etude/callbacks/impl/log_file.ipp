#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"
#include "etude/callbacks/log_file.hpp"
#include "etude/io/file_system.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::detail {

ETUDE_INLINE std::filesystem::path log_path(const TrainingArguments& args, const std::string& path) {
  if (path.empty()) throw ArgumentError("path is '': must be the name of a file");
  return std::filesystem::path(args.output_dir) / path;
}

ETUDE_INLINE std::string read_log(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

ETUDE_INLINE void replace_log(const std::filesystem::path& path, std::string_view text) {
  try {
    auto& files = default_file_system();
    files.create_directories(path.parent_path());
    write_file(files, path, text);
  } catch (const CheckpointError& error) {
    throw ArgumentError(fmt::format("path is {}: {}", path.string(), error.what()));
  }
}

ETUDE_INLINE std::string_view first_lines(std::string_view text, std::int64_t count) {
  std::size_t end = 0;
  for (; count > 0; --count) {
    const auto newline = text.find('\n', end);
    if (newline == text.npos) break;
    end = newline + 1;
  }
  return text.substr(0, end);
}

ETUDE_INLINE void append_to_log(const TrainingArguments& args, const std::filesystem::path& path,
                                std::string_view text) {
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
  // The next log would go on in a line that was begun.
  if (file != nullptr) std::filesystem::resize_file(path, is_new ? 0 : size, ignored);
}

ETUDE_INLINE std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

ETUDE_INLINE std::string csv_number(double value) { return fmt::format("{}", without_sign_of_nan(value)); }

ETUDE_INLINE std::vector<std::string> csv_records(std::string_view text) {
  std::vector<std::string> records;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != '\n' || quoted) continue;
    const std::size_t end = i > begin && text[i - 1] == '\r' ? i - 1 : i;
    records.emplace_back(text.substr(begin, end - begin));
    begin = i + 1;
  }
  return records;
}

ETUDE_INLINE std::vector<std::string> csv_fields(std::string_view record) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < record.size(); ++i) {
    const char c = record[i];
    if (c == '"' && quoted && i + 1 < record.size() && record[i + 1] == '"') {
      fields.back() += record[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

}  // namespace etude::detail
