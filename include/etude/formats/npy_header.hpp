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

}  // namespace detail

/// Parses and validates the header of a .npy file (format 1, 2 or 3) with content `file`. Throws DataError
/// with the field, its value and what is allowed.
NpyHeader read_npy_header(std::span<const std::byte> file);

/// The start of a .npy file, up to its items, which are aligned to 64 bytes as in NumPy's files.
std::string npy_header_bytes(const FileDtype& dtype, std::span<const std::int64_t> shape);

}  // namespace etude::inline v0
