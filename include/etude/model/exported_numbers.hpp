#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"

/// The functions of numbers in an exported graph, which compute sizes of tensors: Python's operators, with
/// Python's results.
namespace etude::inline v0::detail {

/// Replaces its arguments on the stack with its result.
struct NumberFunction {
  std::string_view name;
  std::size_t arguments;
  void (*call)(torch::jit::Stack&);
};

inline bool are_integers(const torch::jit::Stack& stack) {
  return std::ranges::all_of(stack, [](const auto& value) { return value.isInt() || value.isBool(); });
}

inline double real_of(const c10::IValue& value) { return value.toScalar().toDouble(); }
inline std::int64_t integer_of(const c10::IValue& value) { return value.toScalar().toLong(); }

/// Calls `f` with the arguments as integers if all are, and as reals otherwise.
template <class F>
void apply(torch::jit::Stack& stack, F f) {
  c10::IValue result;
  if (stack.size() == 1)
    result = are_integers(stack) ? c10::IValue(f(integer_of(stack[0]))) : c10::IValue(f(real_of(stack[0])));
  stack.assign({std::move(result)});
}
template <class F>
void apply_two(torch::jit::Stack& stack, F f) {
  auto result = are_integers(stack) ? c10::IValue(f(integer_of(stack[0]), integer_of(stack[1])))
                                    : c10::IValue(f(real_of(stack[0]), real_of(stack[1])));
  stack.assign({std::move(result)});
}

/// Works bitwise on two integers, and on the truth values of other numbers.
template <class F>
void apply_to_bits(torch::jit::Stack& stack, F f) {
  const bool bits = stack[0].isInt() && stack[1].isInt();
  auto result =
      bits ? c10::IValue(f(integer_of(stack[0]), integer_of(stack[1])))
           : c10::IValue(static_cast<bool>(f(stack[0].toScalar().toBool(), stack[1].toScalar().toBool())));
  stack.assign({std::move(result)});
}

template <class T>
void check_divisor(T divisor) {
  if (divisor == 0) throw DataError("an exported graph divides a size by zero");
}

/// The result has the sign of the divisor, as with Python's %.
template <class T>
T remainder_of(T a, T b) {
  check_divisor(b);
  if constexpr (std::same_as<T, double>) {
    const T rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    if (b == -1) return 0;
    const T rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
}

/// Rounds down, as Python's // does.
template <class T>
T floor_divided(T a, T b) {
  check_divisor(b);
  if constexpr (std::same_as<T, double>) {
    return std::round((a - remainder_of(a, b)) / b);
  } else {
    if (b == -1) return static_cast<T>(-static_cast<std::uint64_t>(a));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
  }
}

/// Wraps around where Python's integers would grow beyond 64 bits.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::same_as<T, double>)
    return f(a, b);
  else
    return static_cast<T>(f(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
}

c10::IValue power(const torch::jit::Stack& stack);

using NumberStack = torch::jit::Stack;

inline constexpr std::array number_functions{
    NumberFunction{
        "_operator.add", 2,
        [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return wrapping(a, b, std::plus<>()); }); }},
    NumberFunction{
        "_operator.sub", 2,
        [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return wrapping(a, b, std::minus<>()); }); }},
    NumberFunction{"_operator.mul", 2,
                   [](NumberStack& s) {
                     apply_two(s, [](auto a, auto b) { return wrapping(a, b, std::multiplies<>()); });
                   }},
    NumberFunction{"_operator.floordiv", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return floor_divided(a, b); }); }},
    NumberFunction{"_operator.mod", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return remainder_of(a, b); }); }},
    NumberFunction{"_operator.truediv", 2,
                   [](NumberStack& s) {
                     const double divisor = real_of(s[1]);
                     check_divisor(divisor);
                     s.assign({real_of(s[0]) / divisor});
                   }},
    NumberFunction{"_operator.pow", 2, [](NumberStack& s) { s.assign({power(s)}); }},
    NumberFunction{
        "_operator.neg", 1,
        [](NumberStack& s) { apply(s, [](auto a) { return wrapping(decltype(a){0}, a, std::minus<>()); }); }},
    NumberFunction{"_operator.abs", 1,
                   [](NumberStack& s) {
                     apply(s, [](auto a) { return a < 0 ? wrapping(decltype(a){0}, a, std::minus<>()) : a; });
                   }},
    NumberFunction{"_operator.pos", 1, [](NumberStack&) {}},
    NumberFunction{"_operator.lshift", 2,
                   [](NumberStack& s) {
                     const auto by = integer_of(s[1]);
                     s.assign({by < 0 || by > 62 ? std::int64_t{0}
                                                 : static_cast<std::int64_t>(
                                                       static_cast<std::uint64_t>(integer_of(s[0])) << by)});
                   }},
    NumberFunction{"_operator.rshift", 2,
                   [](NumberStack& s) {
                     s.assign({integer_of(s[0]) >> std::clamp<std::int64_t>(integer_of(s[1]), 0, 63)});
                   }},
    NumberFunction{"_operator.eq", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return a == b; }); }},
    NumberFunction{"_operator.ne", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return a != b; }); }},
    NumberFunction{"_operator.lt", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return a < b; }); }},
    NumberFunction{"_operator.le", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return a <= b; }); }},
    NumberFunction{"_operator.gt", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return a > b; }); }},
    NumberFunction{"_operator.ge", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return a >= b; }); }},
    NumberFunction{"_operator.and_", 2, [](NumberStack& s) { apply_to_bits(s, std::bit_and<>()); }},
    NumberFunction{"_operator.or_", 2, [](NumberStack& s) { apply_to_bits(s, std::bit_or<>()); }},
    NumberFunction{"math.ceil", 1,
                   [](NumberStack& s) { s.assign({at::Scalar(std::ceil(real_of(s[0]))).toLong()}); }},
    NumberFunction{"math.floor", 1,
                   [](NumberStack& s) { s.assign({at::Scalar(std::floor(real_of(s[0]))).toLong()}); }},
    NumberFunction{"math.trunc", 1, [](NumberStack& s) { s.assign({integer_of(s[0])}); }},
    NumberFunction{"torch.sym_not", 1, [](NumberStack& s) { s.assign({!s[0].toScalar().toBool()}); }},
    NumberFunction{"torch.sym_int", 1, [](NumberStack& s) { s.assign({integer_of(s[0])}); }},
    NumberFunction{"torch.sym_float", 1, [](NumberStack& s) { s.assign({real_of(s[0])}); }},
    NumberFunction{"torch.sym_max", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return std::max(a, b); }); }},
    NumberFunction{"torch.sym_min", 2,
                   [](NumberStack& s) { apply_two(s, [](auto a, auto b) { return std::min(a, b); }); }},
    NumberFunction{"torch.sym_ite", 3,
                   [](NumberStack& s) { s.assign({s[0].toScalar().toBool() ? s[1] : s[2]}); }},
    NumberFunction{"torch._sym_sqrt", 1, [](NumberStack& s) { s.assign({std::sqrt(real_of(s[0]))}); }},
    NumberFunction{"torch.sym_sqrt", 1, [](NumberStack& s) { s.assign({std::sqrt(real_of(s[0]))}); }}};

/// Returns null if there is no function of that name.
const NumberFunction* find_number_function(std::string_view name);

/// Returns a function that reads a tensor's size, stride or the like without the dispatcher; null for other
/// operators.
inline auto size_function(std::string_view operation) -> void (*)(NumberStack&) {
  if (operation == "aten::sym_size")
    return [](NumberStack& s) { s.assign({s.at(0).toTensor().size(s.at(1).toInt())}); };
  if (operation == "aten::sym_stride")
    return [](NumberStack& s) { s.assign({s.at(0).toTensor().stride(s.at(1).toInt())}); };
  if (operation == "aten::sym_numel") return [](NumberStack& s) { s.assign({s.at(0).toTensor().numel()}); };
  if (operation == "aten::sym_storage_offset")
    return [](NumberStack& s) { s.assign({s.at(0).toTensor().storage_offset()}); };
  return nullptr;
}

}  // namespace etude::inline v0::detail
