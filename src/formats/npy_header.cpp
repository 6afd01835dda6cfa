#include "etude/formats/npy_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "etude/base/byte_order.hpp"

namespace etude::inline v0::detail {

namespace {

/// Parses the header's text, a Python dict of 'descr', 'fortran_order' and 'shape', without Python: supports
/// only the literals that these values may be.
class NpyHeaderText {
 public:
  explicit NpyHeaderText(std::string_view text) : text_(text) {}

  NpyHeader read() {
    expect('{');
    while (!take('}')) {
      const auto key = string("a key");
      expect(':');
      if (key == "descr") {
        once(has_descr_, key);
        read_descr();
      } else if (key == "fortran_order") {
        once(has_order_, key);
        read_order();
      } else if (key == "shape") {
        once(has_shape_, key);
        read_shape();
      } else {
        throw npy_fault("header: '{}' must be one of descr, fortran_order, shape", printable(key));
      }
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) throw npy_fault("header: unexpected text after the dict, at character {}", at_);
    for (const auto& [has, name] : {std::pair(has_descr_, "descr"), std::pair(has_order_, "fortran_order"),
                                    std::pair(has_shape_, "shape")})
      if (!has) throw npy_fault("header: {} is missing", name);
    return std::move(header_);
  }

 private:
  static constexpr std::size_t most_dimensions = 64;  // LibTorch's limit

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  bool take(char wanted) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) throw npy_fault("header: '{}' must be at character {}", wanted, at_);
  }

  static void once(bool& seen, std::string_view key) {
    if (std::exchange(seen, true)) throw npy_fault("header: '{}' appears twice", key);
  }

  std::string_view string(std::string_view what) {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"')
      throw npy_fault("header: {} must be a string, at character {}", what, at_);
    const auto begin = ++at_;
    const auto end = text_.find(quote, begin);
    if (end == text_.npos) throw npy_fault("header: the string at character {} isn't terminated", begin - 1);
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  std::string_view word() {
    skip_space();
    const auto begin = at_;
    const auto is_word = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
             c == '_' || c == '.';
    };
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  void read_descr() {
    if (take('[')) throw npy_fault("descr: structured dtypes can't be tensors");
    const auto descr = string("descr");
    const char order = descr.empty() ? '\0' : descr.front();
    const auto kind = std::string_view(descr).substr(std::min<std::size_t>(1, descr.size()));
    if (kind == "O")
      throw npy_fault("descr is '{}': arrays of Python objects are refused, because reading them runs code",
                      printable(descr));
    const auto* dtype = std::ranges::find(npy_dtypes, kind, &FileDtype::name);
    const bool known = dtype != npy_dtypes.end() && (order == '<' || order == '>' || order == '|');
    if (!known || (order == '|' && dtype->item_size > 1))
      throw npy_fault("descr is '{}': must be one of {}", printable(descr), dtype_names());
    if (order == '>' && dtype->item_size > 1)
      throw npy_fault("descr is '{}': must be little-endian ('<{}'); use array.astype('<{}')", descr, kind,
                      kind);
    header_.dtype = dtype;
  }

  static std::string dtype_names() {
    std::string names;
    for (const auto& dtype : npy_dtypes)
      names.append(names.empty() ? "" : ", ").append(dtype.item_size > 1 ? "<" : "|").append(dtype.name);
    return names;
  }

  void read_order() {
    const auto value = word();
    if (value == "True")
      throw npy_fault("fortran_order is True: must be False (row-major order); use numpy.ascontiguousarray");
    if (value != "False") throw npy_fault("fortran_order is '{}': must be False", printable(value));
  }

  void read_shape() {
    expect('(');
    bool is_tuple = true;
    while (!take(')')) {
      if (header_.shape.size() == most_dimensions)
        throw npy_fault("shape has more than {} dimensions", most_dimensions);
      header_.shape.push_back(size());
      is_tuple = take(',');
      if (is_tuple) continue;
      if (header_.shape.size() == 1)
        throw npy_fault("shape is ({}): must be a tuple, ({},)", header_.shape[0], header_.shape[0]);
      expect(')');
      break;
    }
  }

  std::int64_t size() {
    auto digits = word();
    const auto text = digits;
    if (digits.ends_with('L')) digits.remove_suffix(1);  // Python 2's long integers
    const bool whole =
        !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
    if (!whole || (digits.size() > 1 && digits.front() == '0'))
      throw npy_fault("shape: '{}' must be a whole number from 0", printable(text));
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    std::int64_t value = 0;
    for (const char digit : digits) {
      if (value > (most - (digit - '0')) / 10) throw npy_fault("shape: {} is too large", printable(text));
      value = value * 10 + (digit - '0');
    }
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

}  // namespace

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

NpyHeader read_npy_header(std::span<const std::byte> file) {
  using detail::npy_fault;
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  constexpr std::string_view magic("\x93NUMPY", 6);
  if (!text.starts_with(magic)) throw npy_fault("it isn't a .npy file: it must begin with \\x93NUMPY");
  const auto byte = [&](std::size_t i) { return static_cast<std::size_t>(file[i]); };
  if (file.size() < 8) throw npy_fault("its header is truncated, at {} bytes", file.size());
  const auto major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0)
    throw npy_fault("format version is {}.{}: must be 1.0, 2.0 or 3.0", major, minor);
  const std::size_t begin = major == 1 ? 10 : 12;
  if (file.size() < begin) throw npy_fault("its header is truncated, at {} bytes", file.size());
  const auto length = detail::little_endian(text.substr(8, begin - 8));
  if (length > file.size() - begin)
    throw npy_fault("header length is {}: the file has only {} bytes", length, file.size());
  auto header = detail::NpyHeaderText(text.substr(begin, length)).read();
  header.data_begin = begin + length;
  detail::check_array_size(header.shape, header.dtype->name, header.dtype->item_size,
                           file.size() - header.data_begin);
  return header;
}

std::string npy_header_bytes(const FileDtype& dtype, std::span<const std::int64_t> shape) {
  auto header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}{}), }}",
                            dtype.item_size > 1 ? '<' : '|', dtype.name, fmt::join(shape, ", "),
                            shape.size() == 1 ? "," : "");
  header.append(63 - (10 + header.size()) % 64, ' ').append("\n");
  // At most 64 dimensions of 20 digits, so format 1 suffices.
  return std::string("\x93NUMPY\x01\x00", 8) + detail::little_endian_bytes(header.size(), 2) + header;
}

}  // namespace etude::inline v0
