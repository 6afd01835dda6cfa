#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace etude::inline v0 {

/// A dtype of a file format, with the tensor dtype that it corresponds to.
struct FileDtype {
  /// The format's name for it: "F32" in safetensors, "f4" in NumPy (the letter of its kind and the item
  /// size).
  std::string_view name;
  /// LibTorch's name for it.
  std::string_view torch_name;
  /// Size of one item in bytes.
  std::size_t item_size;
};

namespace detail {

/// The bytes of a dense array; unset if LibTorch can't address so many.
std::optional<std::uint64_t> bytes_of_array(std::span<const std::int64_t> shape, std::uint64_t item_size);

/// Throws DataError unless an array of this shape fills the `bytes` after its header.
void check_array_size(std::span<const std::int64_t> shape, std::string_view dtype, std::uint64_t item_size,
                      std::uint64_t bytes);

}  // namespace detail
}  // namespace etude::inline v0
