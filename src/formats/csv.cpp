#include "etude/formats/csv.hpp"

#include <csv.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/formats/mapped_tensor.hpp"
#include "etude/io/mapped_file.hpp"

namespace etude::inline v0 {

torch::Tensor CsvTable::columns(const std::vector<std::string>& names, torch::ScalarType dtype) const {
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

std::vector<std::string> CsvTable::text(std::string_view name) const {
  const auto column = index_of(name);
  std::vector<std::string> result;
  for (std::size_t row = 0; row < lines_.size(); ++row) result.emplace_back(field(row, column));
  return result;
}

std::vector<std::string> CsvTable::categories(std::string_view name) const {
  auto result = text(name);
  std::erase_if(result, [&](const std::string& text) { return is_missing(text); });
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

torch::Tensor CsvTable::codes(std::string_view name, const std::vector<std::string>& categories) const {
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

/// Feeds libcsv one line at a time, so that errors can name the line.
class CsvTable::Reader {
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
  void check(bool parsed) {
    if (error_) std::rethrow_exception(error_);
    if (parsed) return;
    if (csv_error(&parser_) == CSV_EPARSE)
      throw table_.fault(line_,
                         "a field that begins with a quote must end with one, and quotes inside must be "
                         "doubled; other fields must not contain quotes");
    throw table_.fault(line_, csv_strerror(csv_error(&parser_)));
  }

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

CsvTable::CsvTable(const std::filesystem::path& path, CsvOptions options)
    : path_(path.string()), options_(std::move(options)) {
  Reader(*this).read(detail::map_data(path)->text());
}

DataError CsvTable::fault(std::size_t row, std::size_t column, std::string_view allowed) const {
  return fault(lines_[row], "column '{}' is '{}': must be {}", detail::printable(names_[column]),
               detail::printable(field(row, column)), allowed);
}

void CsvTable::finish_row(std::size_t line) {
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

std::string_view CsvTable::field(std::size_t row, std::size_t column) const {
  const auto i = row * names_.size() + column;
  const auto begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

std::size_t CsvTable::index_of(std::string_view name) const {
  const auto found = std::ranges::find(names_, name);
  if (found == names_.end())
    throw DataError(fmt::format("{}: no column is named '{}'; columns are: {}", path_, name,
                                detail::printable(fmt::format("{}", fmt::join(names_, ", ")))));
  return static_cast<std::size_t>(found - names_.begin());
}

}  // namespace etude::inline v0
