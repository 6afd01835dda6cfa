#include "etude/model/exported_numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace etude::inline v0::detail {

c10::IValue power(const torch::jit::Stack& stack) {
  if (!are_integers(stack) || integer_of(stack[1]) < 0) return std::pow(real_of(stack[0]), real_of(stack[1]));
  std::uint64_t result = 1, base = static_cast<std::uint64_t>(integer_of(stack[0]));
  for (auto left = static_cast<std::uint64_t>(integer_of(stack[1])); left > 0; left >>= 1, base *= base)
    if (left & 1) result *= base;
  return static_cast<std::int64_t>(result);
}

const NumberFunction* find_number_function(std::string_view name) {
  const auto found = std::ranges::find(number_functions, name, &NumberFunction::name);
  return found == number_functions.end() ? nullptr : &*found;
}

}  // namespace etude::inline v0::detail
