#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/utf8.hpp"
#include "etude/formats/file_dtype.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/reflect/json_parser.hpp"

/// The header of a safetensors file, which describes its data.
namespace etude::inline v0 {

/// The dtypes whose items are whole bytes, in the format's order, narrowest first.
inline constexpr std::array<FileDtype, 19> safetensors_dtypes = {{
    {"BOOL", "Bool", 1},
    {"U8", "Byte", 1},
    {"I8", "Char", 1},
    {"F8_E5M2", "Float8_e5m2", 1},
    {"F8_E4M3", "Float8_e4m3fn", 1},
    {"F8_E8M0", "Float8_e8m0fnu", 1},
    {"F8_E4M3FNUZ", "Float8_e4m3fnuz", 1},
    {"F8_E5M2FNUZ", "Float8_e5m2fnuz", 1},
    {"I16", "Short", 2},
    {"U16", "UInt16", 2},
    {"F16", "Half", 2},
    {"BF16", "BFloat16", 2},
    {"I32", "Int", 4},
    {"U32", "UInt32", 4},
    {"F32", "Float", 4},
    {"C64", "ComplexFloat", 8},
    {"F64", "Double", 8},
    {"I64", "Long", 8},
    {"U64", "UInt64", 8},
}};

struct SafeTensorsEntry {
  std::string name;
  const FileDtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  /// The range of the tensor's bytes, counted from the end of the header.
  std::uint64_t begin = 0, end = 0;
};

struct SafeTensorsHeader {
  /// The tensors in the order of their bytes, which are contiguous.
  std::vector<SafeTensorsEntry> tensors;
  std::map<std::string, std::string> metadata;
  /// The offset of the tensors' bytes in the file.
  std::uint64_t data_begin = 0;
};

/// The header size limit of the reference implementation.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

namespace detail {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

template <class... Args>
CheckpointError safetensors_fault(fmt::format_string<Args...> text, Args&&... args) {
  return CheckpointError(fmt::format(text, std::forward<Args>(args)...));
}

std::string safetensors_dtype_names();

}  // namespace detail

/// Parses and validates the header of a safetensors file with content `file`. Throws CheckpointError with the
/// tensor and the field.
SafeTensorsHeader read_safetensors_header(std::span<const std::byte> file);

/// The start of a safetensors file, up to the tensors' bytes: the header's length and the header, padded for
/// alignment. Throws CheckpointError for names or metadata that the format doesn't support.
std::string safetensors_header_bytes(std::span<const SafeTensorsEntry> tensors,
                                     const std::map<std::string, std::string>& metadata);

namespace detail {

/// True if every byte is 0 or 1, as BOOL requires: reading another value as a bool is undefined behavior in
/// C++.
bool are_bools(std::span<const std::byte> bytes);

}  // namespace detail
}  // namespace etude::inline v0
