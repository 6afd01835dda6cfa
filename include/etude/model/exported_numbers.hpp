#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <string_view>

namespace etude::inline v0::detail {

/// A function of numbers in an exported graph, which computes sizes of tensors: one of Python's operators,
/// with Python's results.
struct NumberFunction {
  std::string_view name;
  std::size_t arguments;
  /// Replaces its arguments on the stack with its result.
  void (*call)(torch::jit::Stack&);
  /// True if it reads a property of a tensor, such as a size: its first argument is the tensor, the second an
  /// integer.
  bool reads_tensor = false;
};

/// Returns null if there is no function of that name.
const NumberFunction* find_number_function(std::string_view name);

}  // namespace etude::inline v0::detail
