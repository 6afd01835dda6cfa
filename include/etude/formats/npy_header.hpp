#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/formats/file_dtype.hpp"
#include "etude/io/entry_name.hpp"

/// The header of NumPy's .npy files, which describes their data.
namespace etude::inline v0 {

inline constexpr std::array<FileDtype, 14> npy_dtypes = {{
    {"b1", "Bool", 1},
    {"u1", "Byte", 1},
    {"i1", "Char", 1},
    {"i2", "Short", 2},
    {"u2", "UInt16", 2},
    {"f2", "Half", 2},
    {"i4", "Int", 4},
    {"u4", "UInt32", 4},
    {"f4", "Float", 4},
    {"i8", "Long", 8},
    {"u8", "UInt64", 8},
    {"f8", "Double", 8},
    {"c8", "ComplexFloat", 8},
    {"c16", "ComplexDouble", 16},
}};

struct NpyHeader {
  const FileDtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  /// The offset of the items in the file; they fill the rest of it.
  std::uint64_t data_begin = 0;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "items are mapped without conversion");

template <class... Args>
DataError npy_fault(fmt::format_string<Args...> text, Args&&... args) {
  return DataError(fmt::format(text, std::forward<Args>(args)...));
}

/// Parses the header's text, a Python dict of 'descr', 'fortran_order' and 'shape', without Python: supports
/// only the literals that these values may be.
class NpyHeaderText {
 public:
  explicit NpyHeaderText(std::string_view text) : text_(text) {}

  /// The header, and the number of bytes that its dtype and shape need.
  std::pair<NpyHeader, std::uint64_t> read();

 private:
  static constexpr std::size_t most_dimensions = 64;  // LibTorch's limit

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  bool take(char wanted);

  void expect(char wanted) {
    if (!take(wanted)) throw npy_fault("header: '{}' must be at character {}", wanted, at_);
  }

  static void once(bool& seen, std::string_view key) {
    if (std::exchange(seen, true)) throw npy_fault("header: '{}' appears twice", key);
  }

  std::string_view string(std::string_view what);

  std::string_view word();

  void read_descr();

  static std::string dtype_names();

  void read_order();

  void read_shape();

  std::int64_t size();

  // Empty dimensions count as 1, as in LibTorch's computation of strides.
  std::uint64_t bytes() const;

  std::string_view text_;
  std::size_t at_ = 0;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

}  // namespace detail

/// Parses and validates the header of a .npy file (format 1, 2 or 3) with content `file`. Throws DataError
/// with the field, its value and what is allowed.
NpyHeader read_npy_header(std::span<const std::byte> file);

/// The start of a .npy file, up to its items, which are aligned to 64 bytes as in NumPy's files.
std::string npy_header_bytes(const FileDtype& dtype, std::span<const std::int64_t> shape);

}  // namespace etude::inline v0
