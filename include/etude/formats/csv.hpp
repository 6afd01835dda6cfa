#pragma once

#ifndef ETUDE_CSV
#error "etude/formats/csv.hpp needs a library: link etude::csv"
#endif

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/reflect/read_text.hpp"

/// Needs libcsv (https://github.com/rgamble/libcsv) and the CMake target etude::csv. Not included by
/// etude.hpp.
namespace etude::inline v0 {

struct CsvOptions {
  char delimiter = ',';
  char quote = '"';
  /// True if the first row holds the column names; otherwise they are "0", "1", ...
  bool header = true;
  /// The number, such as NaN, that replaces a missing one; if unset, a missing number is an error.
  std::optional<double> missing = {};
  /// Fields with one of these texts count as missing: by default empty ones; add "NA" if the file uses it.
  std::vector<std::string> missing_texts = {""};
};

/// A CSV file in memory, with columns accessed by name, as numbers or text. Parsing is strict: every row has
/// as many fields as the first, and quotes follow RFC 4180; spaces around unquoted fields and empty lines are
/// ignored. Numbers are read as pandas reads them, except true and false, numbers too large for their dtype
/// (infinite in pandas), and whole numbers that a double would round. Throws DataError with the file, the
/// line (for a row of several lines, its last), the column and the text.
class CsvTable {
 public:
  explicit CsvTable(const std::filesystem::path& path, CsvOptions options = {});

  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  const std::vector<std::string>& names() const { return names_; }

  /// A column as numbers [rows]: float32, float64 or int64.
  torch::Tensor column(std::string_view name, torch::ScalarType dtype = torch::kFloat) const {
    return columns({std::string(name)}, dtype).squeeze(1);
  }

  /// Columns as numbers [rows, names]: float32, float64 or int64.
  torch::Tensor columns(const std::vector<std::string>& names, torch::ScalarType dtype = torch::kFloat) const;

  /// A column's text as in the file, without quotes.
  std::vector<std::string> text(std::string_view name) const;

  /// The distinct texts of a column, sorted by their bytes, without the missing ones.
  std::vector<std::string> categories(std::string_view name) const;

  /// A column's texts as indices into `categories` (which may come from another table): int64 [rows], -1 for
  /// a missing one. Throws DataError for a text that isn't among them.
  torch::Tensor codes(std::string_view name, const std::vector<std::string>& categories) const;

 private:
  class Reader;

  template <class... Args>
  DataError fault(std::size_t line, fmt::format_string<Args...> text, Args&&... args) const {
    return DataError(
        fmt::format("{}: line {}: {}", path_, line, fmt::format(text, std::forward<Args>(args)...)));
  }
  DataError fault(std::size_t line, const char* text) const { return fault(line, "{}", text); }
  DataError fault(std::size_t row, std::size_t column, std::string_view allowed) const;

  void finish_row(std::size_t line);

  std::string_view field(std::size_t row, std::size_t column) const;

  bool is_missing(std::string_view text) const {
    return std::ranges::find(options_.missing_texts, text) != options_.missing_texts.end();
  }

  std::size_t index_of(std::string_view name) const;

  template <class T>
  void fill(torch::Tensor& table, const std::vector<std::size_t>& chosen) const {
    auto* to = table.data_ptr<T>();
    for (std::size_t row = 0; row < lines_.size(); ++row)
      for (const auto column : chosen) *to++ = number<T>(row, column);
  }

  template <class T>
  T number(std::size_t row, std::size_t column) const {
    const auto text = field(row, column);
    const auto must_be = [&](std::string_view allowed) { return fault(row, column, allowed); };
    if (options_.missing && is_missing(text)) {
      if constexpr (std::floating_point<T>)
        return static_cast<T>(*options_.missing);
      else if (const auto whole = detail::exact<T>(*options_.missing))
        return *whole;
    }
    T value{};
    switch (detail::parse_number(text, value)) {
      case detail::NumberFault::none:
        return value;
      case detail::NumberFault::out_of_range:
        throw must_be(fmt::format("in the range of {}", dtype_name(c10::CppTypeToScalarType<T>::value)));
      case detail::NumberFault::not_a_number:
      case detail::NumberFault::not_whole:
        break;
    }
    throw must_be(std::integral<T> ? "a whole number" : "a number");
  }

  std::string path_;
  CsvOptions options_;
  std::vector<std::string> names_;
  std::string text_;                // all fields, row by row
  std::vector<std::size_t> ends_;   // the end of each field in text_
  std::vector<std::size_t> lines_;  // the line of each row
};

}  // namespace etude::inline v0
