#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"

/// The header of an IDX file, the format of MNIST's images and labels: two zero bytes, the dtype's code, the
/// number of dimensions, and each dimension. All numbers are big-endian.
namespace etude::inline v0 {

struct IdxDtype {
  std::uint8_t code;
  /// LibTorch's name for it.
  std::string_view torch_name;
  std::size_t item_size;
};

inline constexpr std::array<IdxDtype, 6> idx_dtypes = {{
    {0x08, "Byte", 1},
    {0x09, "Char", 1},
    {0x0b, "Short", 2},
    {0x0c, "Int", 4},
    {0x0d, "Float", 4},
    {0x0e, "Double", 8},
}};

struct IdxHeader {
  const IdxDtype* dtype = nullptr;
  std::vector<std::int64_t> shape;
  /// The offset of the items in the file; they fill the rest of it.
  std::uint64_t data_begin = 0;
};

namespace detail {

std::string idx_dtype_names();

}  // namespace detail

/// Parses and validates the header of an IDX file with content `file`. Throws DataError with the field, its
/// value and what is allowed.
IdxHeader read_idx_header(std::span<const std::byte> file);

}  // namespace etude::inline v0
