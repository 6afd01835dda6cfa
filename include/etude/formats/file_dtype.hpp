#pragma once

#include <cstddef>
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

}  // namespace etude::inline v0
