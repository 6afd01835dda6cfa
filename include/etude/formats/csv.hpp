#pragma once

#include <ATen/ops/empty.h>
#include <csv.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/formats/mapped_tensor.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/io/mapped_file.hpp"
#include "etude/reflect/read_text.hpp"

/// Needs libcsv (https://github.com/rgamble/libcsv) and the CMake target etude::csv. Not included by
/// etude.hpp.
namespace etude::inline v0 {

struct CsvOptions {
  char delimiter = ',';
  char quote = '"';
  /// Whether the first row holds the column names; otherwise they are "0", "1", ...
  bool header = true;
  /// The number that replaces a missing one (such as NaN); if unset, missing numbers are errors.
  std::optional<double> missing = {};
  /// The fields that count as missing: those that are empty, and perhaps "NA".
  std::vector<std::string> missing_texts = {""};
};

/// A CSV file in memory, with columns accessed by name, as numbers or text. Parsing is strict: every row has
/// as many fields as the first, and quotes follow RFC 4180; spaces around unquoted fields and empty lines are
/// ignored. Numbers are read as pandas reads them, but for true and false, numbers too large for their dtype
/// (pandas has infinities), and whole numbers that a double rounds. Throws DataError with the file, the line
/// (for a row of several lines, its last), the column and the text.
class CsvTable {
 public:
  explicit CsvTable(const std::filesystem::path& path, CsvOptions options = {})
      : path_(path.string()), options_(std::move(options)) {
    Reader(*this).read(detail::map_data(path)->text());
  }

  std::int64_t rows() const { return static_cast<std::int64_t>(lines_.size()); }
  const std::vector<std::string>& names() const { return names_; }

  /// A column as numbers [rows]: float32, float64 or int64.
  torch::Tensor column(std::string_view name, torch::ScalarType dtype = torch::kFloat) const {
    return columns({std::string(name)}, dtype).squeeze(1);
  }

  /// Columns as numbers [rows, names]: float32, float64 or int64.
  torch::Tensor columns(const std::vector<std::string>& names,
                        torch::ScalarType dtype = torch::kFloat) const {
    std::vector<std::size_t> chosen;
    for (const auto& name : names) chosen.push_back(index_of(name));
    auto table =
        at::empty({rows(), static_cast<std::int64_t>(chosen.size())}, at::TensorOptions().dtype(dtype));
    if (dtype == torch::kFloat) {
      fill<float>(table, chosen);
    } else if (dtype == torch::kDouble) {
      fill<double>(table, chosen);
    } else if (dtype == torch::kLong) {
      fill<std::int64_t>(table, chosen);
    } else {
      throw ArgumentError(fmt::format("dtype is {}: must be float32, float64 or int64", dtype_name(dtype)));
    }
    return table;
  }

  /// A column's text as in the file, without quotes.
  std::vector<std::string> text(std::string_view name) const {
    const auto column = index_of(name);
    std::vector<std::string> result;
    for (std::size_t row = 0; row < lines_.size(); ++row) result.emplace_back(field(row, column));
    return result;
  }

  /// The different texts of a column in ascending order of their bytes, without the missing ones.
  std::vector<std::string> categories(std::string_view name) const {
    auto result = text(name);
    std::erase_if(result, [&](const std::string& text) { return is_missing(text); });
    std::ranges::sort(result);
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  /// A column's texts as places in `categories` (which may be those of another table): int64 [rows], -1 for a
  /// missing one. Throws DataError for a text that isn't among them.
  torch::Tensor codes(std::string_view name, const std::vector<std::string>& categories) const {
    const auto column = index_of(name);
    auto result = at::empty({rows()}, at::TensorOptions().dtype(torch::kLong));
    auto* to = result.data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < lines_.size(); ++row) {
      const auto text = field(row, column);
      const auto found = std::ranges::find(categories, text);
      if (found == categories.end() && !is_missing(text))
        throw fault(row, column, fmt::format("one of {}", fmt::join(categories, ", ")));
      *to++ = found == categories.end() ? -1 : found - categories.begin();
    }
    return result;
  }

 private:
  // Feeds libcsv line by line, so that the current line is known.
  class Reader {
   public:
    explicit Reader(CsvTable& table) : table_(table) {
      csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI);
      csv_set_delim(&parser_, static_cast<unsigned char>(table.options_.delimiter));
      csv_set_quote(&parser_, static_cast<unsigned char>(table.options_.quote));
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { csv_free(&parser_); }

    void read(std::string_view text) {
      if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
      while (!text.empty()) {
        ++line_;
        const auto length = std::min(text.find('\n'), text.size() - 1) + 1;
        check(csv_parse(&parser_, text.data(), length, on_field, on_row, this) == length);
        text.remove_prefix(length);
      }
      check(csv_fini(&parser_, on_field, on_row, this) == 0);
      if (table_.names_.empty()) throw DataError(table_.path_ + ": it has no rows");
    }

   private:
    void check(bool parsed) const {
      if (error_) std::rethrow_exception(error_);
      if (parsed) return;
      if (csv_error(parser()) == CSV_EPARSE)
        throw table_.fault(line_,
                           "a field that begins with a quote must end with one, and quotes inside must be "
                           "doubled; other fields must not contain quotes");
      throw table_.fault(line_, csv_strerror(csv_error(parser())));
    }
    csv_parser* parser() const { return const_cast<csv_parser*>(&parser_); }  // the C API isn't const-correct

    // Exceptions must not propagate through libcsv, which is C.
    template <class Act>
    void guarded(Act act) noexcept {
      if (error_) return;
      try {
        act();
      } catch (...) {
        error_ = std::current_exception();
      }
    }

    static void on_field(void* text, std::size_t size, void* self) {
      auto& reader = *static_cast<Reader*>(self);
      reader.guarded([&] {
        reader.table_.text_.append(static_cast<const char*>(text), size);
        reader.table_.ends_.push_back(reader.table_.text_.size());
      });
    }

    static void on_row(int, void* self) {
      auto& reader = *static_cast<Reader*>(self);
      reader.guarded([&] { reader.table_.finish_row(reader.line_); });
    }

    CsvTable& table_;
    csv_parser parser_{};
    std::size_t line_ = 0;
    std::exception_ptr error_;
  };

  template <class... Args>
  DataError fault(std::size_t line, fmt::format_string<Args...> text, Args&&... args) const {
    return DataError(
        fmt::format("{}: line {}: {}", path_, line, fmt::format(text, std::forward<Args>(args)...)));
  }
  DataError fault(std::size_t line, const char* text) const { return fault(line, "{}", text); }
  DataError fault(std::size_t row, std::size_t column, std::string_view allowed) const {
    return fault(lines_[row], "column '{}' is '{}': must be {}", detail::printable(names_[column]),
                 detail::printable(field(row, column)), allowed);
  }

  void finish_row(std::size_t line) {
    const auto count = ends_.size() - lines_.size() * names_.size();
    if (names_.empty() && options_.header) {
      for (std::size_t i = 0; i < ends_.size(); ++i) {
        std::string name(field(0, i));
        if (std::ranges::count(names_, name) > 0)
          throw fault(line, "two columns are named '{}'", detail::printable(name));
        names_.push_back(std::move(name));
      }
      text_.clear();
      ends_.clear();
      return;
    }
    if (names_.empty())
      for (std::size_t i = 0; i < count; ++i) names_.push_back(std::to_string(i));
    if (count != names_.size()) throw fault(line, "{} fields: must be {}", count, names_.size());
    lines_.push_back(line);
  }

  std::string_view field(std::size_t row, std::size_t column) const {
    const auto i = row * names_.size() + column;
    const auto begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }

  bool is_missing(std::string_view text) const {
    return std::ranges::find(options_.missing_texts, text) != options_.missing_texts.end();
  }

  std::size_t index_of(std::string_view name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end())
      throw DataError(fmt::format("{}: no column is named '{}'; columns are: {}", path_, name,
                                  detail::printable(fmt::format("{}", fmt::join(names_, ", ")))));
    return static_cast<std::size_t>(found - names_.begin());
  }

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
