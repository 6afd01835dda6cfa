#include "etude/formats/csv_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etude::inline v0::detail {

namespace {

std::string_view without_line_end(std::string_view record) {
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  return record;
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string csv_record(std::span<const std::string> fields) {
  return fmt::format("{}", fmt::join(fields, ","));
}

std::string csv_number(double value) {
  return fmt::format("{}", std::isnan(value) ? std::abs(value) : value);
}

std::vector<std::string_view> csv_raw_records(std::string_view text) {
  std::vector<std::string_view> records;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] != '\n' || quoted) continue;
    records.push_back(text.substr(begin, i + 1 - begin));
    begin = i + 1;
  }
  if (begin < text.size()) records.push_back(text.substr(begin));
  return records;
}

std::vector<std::string> csv_records(std::string_view text) {
  std::vector<std::string> records;
  for (const auto record : csv_raw_records(text))
    if (record.ends_with('\n') && std::ranges::count(record, '"') % 2 == 0)
      records.emplace_back(without_line_end(record));
  return records;
}

std::vector<std::string> csv_fields(std::string_view record) {
  record = without_line_end(record);
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

}  // namespace etude::inline v0::detail
