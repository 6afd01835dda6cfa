#include "etude/callbacks/csv_text.hpp"

#include <fmt/format.h>

#include <cstddef>

#include "etude/metrics/metrics.hpp"

namespace etude::inline v0::detail {

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

std::string csv_number(double value) { return fmt::format("{}", without_sign_of_nan(value)); }

std::vector<std::string> csv_records(std::string_view text) {
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

std::vector<std::string> csv_fields(std::string_view record) {
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
