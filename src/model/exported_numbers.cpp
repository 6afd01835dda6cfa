#include "etude/model/exported_numbers.hpp"

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>

#include "etude/base/error.hpp"

namespace etude::inline v0::detail {

namespace {

using NumberStack = torch::jit::Stack;

bool are_integers(const NumberStack& stack) {
  return std::ranges::all_of(stack, [](const auto& value) { return value.isInt() || value.isBool(); });
}

double real_of(const c10::IValue& value) { return value.toScalar().toDouble(); }
std::int64_t integer_of(const c10::IValue& value) { return value.toScalar().toLong(); }

/// Calls F with the argument as an integer if it is one, and as a real otherwise.
template <class F>
void of_one(NumberStack& s) {
  s.assign({are_integers(s) ? c10::IValue(F()(integer_of(s[0]))) : c10::IValue(F()(real_of(s[0])))});
}

/// Calls F with the arguments as integers if both are, and as reals otherwise.
template <class F>
void of_two(NumberStack& s) {
  s.assign({are_integers(s) ? c10::IValue(F()(integer_of(s[0]), integer_of(s[1])))
                            : c10::IValue(F()(real_of(s[0]), real_of(s[1])))});
}

/// Works bitwise on two integers, and on the truth values of other numbers.
template <class F>
void of_bits(NumberStack& s) {
  const auto truth = [&](std::size_t i) { return s[i].toScalar().toBool(); };
  s.assign({s[0].isInt() && s[1].isInt() ? c10::IValue(F()(integer_of(s[0]), integer_of(s[1])))
                                         : c10::IValue(static_cast<bool>(F()(truth(0), truth(1))))});
}

/// Wraps around where Python's integers would grow beyond 64 bits.
template <class F>
struct Wrapping {
  double operator()(double a, double b) const { return F()(a, b); }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    return static_cast<std::int64_t>(F()(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  }
};

struct Negation {
  auto operator()(auto a) const { return Wrapping<std::minus<>>()(decltype(a){0}, a); }
};

struct Magnitude {
  auto operator()(auto a) const { return a < 0 ? Negation()(a) : a; }
};

template <class T>
void check_divisor(T divisor) {
  if (divisor == 0) throw DataError("an exported graph divides a size by zero");
}

/// The result has the sign of the divisor, as with Python's %.
struct Remainder {
  double operator()(double a, double b) const { return signed_as(b, std::fmod(a, b)); }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    check_divisor(b);
    return b == -1 ? 0 : signed_as(b, a % b);
  }

 private:
  template <class T>
  static T signed_as(T b, T rest) {
    check_divisor(b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
};

/// Rounds down, as Python's // does.
struct FloorDivision {
  double operator()(double a, double b) const { return std::round((a - Remainder()(a, b)) / b); }
  std::int64_t operator()(std::int64_t a, std::int64_t b) const {
    check_divisor(b);
    return b == -1 ? Negation()(a) : a / b - (a % b != 0 && (a < 0) != (b < 0));
  }
};

struct Larger {
  auto operator()(auto a, auto b) const { return std::max(a, b); }
};
struct Smaller {
  auto operator()(auto a, auto b) const { return std::min(a, b); }
};

void divide(NumberStack& s) {
  const double divisor = real_of(s[1]);
  check_divisor(divisor);
  s.assign({real_of(s[0]) / divisor});
}

void power(NumberStack& s) {
  if (!are_integers(s) || integer_of(s[1]) < 0) return s.assign({std::pow(real_of(s[0]), real_of(s[1]))});
  std::uint64_t result = 1, base = static_cast<std::uint64_t>(integer_of(s[0]));
  for (auto left = static_cast<std::uint64_t>(integer_of(s[1])); left > 0; left >>= 1, base *= base)
    if (left & 1) result *= base;
  s.assign({static_cast<std::int64_t>(result)});
}

void shift_left(NumberStack& s) {
  const auto by = integer_of(s[1]);
  const auto bits = static_cast<std::uint64_t>(integer_of(s[0]));
  s.assign({by < 0 || by > 62 ? std::int64_t{0} : static_cast<std::int64_t>(bits << by)});
}

template <double (*F)(double)>
void round_with(NumberStack& s) {
  s.assign({at::Scalar(F(real_of(s[0]))).toLong()});
}

void to_integer(NumberStack& s) { s.assign({integer_of(s[0])}); }
void square_root(NumberStack& s) { s.assign({std::sqrt(real_of(s[0]))}); }

constexpr auto number_functions = std::to_array<NumberFunction>({
    {"_operator.add", 2, of_two<Wrapping<std::plus<>>>},
    {"_operator.sub", 2, of_two<Wrapping<std::minus<>>>},
    {"_operator.mul", 2, of_two<Wrapping<std::multiplies<>>>},
    {"_operator.floordiv", 2, of_two<FloorDivision>},
    {"_operator.mod", 2, of_two<Remainder>},
    {"_operator.truediv", 2, divide},
    {"_operator.pow", 2, power},
    {"_operator.neg", 1, of_one<Negation>},
    {"_operator.abs", 1, of_one<Magnitude>},
    {"_operator.pos", 1, [](NumberStack&) {}},
    {"_operator.lshift", 2, shift_left},
    {"_operator.rshift", 2,
     [](NumberStack& s) {
       s.assign({integer_of(s[0]) >> std::clamp<std::int64_t>(integer_of(s[1]), 0, 63)});
     }},
    {"_operator.eq", 2, of_two<std::equal_to<>>},
    {"_operator.ne", 2, of_two<std::not_equal_to<>>},
    {"_operator.lt", 2, of_two<std::less<>>},
    {"_operator.le", 2, of_two<std::less_equal<>>},
    {"_operator.gt", 2, of_two<std::greater<>>},
    {"_operator.ge", 2, of_two<std::greater_equal<>>},
    {"_operator.and_", 2, of_bits<std::bit_and<>>},
    {"_operator.or_", 2, of_bits<std::bit_or<>>},
    {"math.ceil", 1, round_with<std::ceil>},
    {"math.floor", 1, round_with<std::floor>},
    {"math.trunc", 1, to_integer},
    {"torch.sym_not", 1, [](NumberStack& s) { s.assign({!s[0].toScalar().toBool()}); }},
    {"torch.sym_int", 1, to_integer},
    {"torch.sym_float", 1, [](NumberStack& s) { s.assign({real_of(s[0])}); }},
    {"torch.sym_max", 2, of_two<Larger>},
    {"torch.sym_min", 2, of_two<Smaller>},
    {"torch.sym_ite", 3, [](NumberStack& s) { s.assign({s[0].toScalar().toBool() ? s[1] : s[2]}); }},
    {"torch._sym_sqrt", 1, square_root},
    {"torch.sym_sqrt", 1, square_root},
    // The dispatcher isn't needed to read these.
    {"aten::sym_size", 2, [](NumberStack& s) { s.assign({s[0].toTensor().size(s[1].toInt())}); }, true},
    {"aten::sym_stride", 2, [](NumberStack& s) { s.assign({s[0].toTensor().stride(s[1].toInt())}); }, true},
    {"aten::sym_numel", 1, [](NumberStack& s) { s.assign({s[0].toTensor().numel()}); }, true},
    {"aten::sym_storage_offset", 1, [](NumberStack& s) { s.assign({s[0].toTensor().storage_offset()}); },
     true},
});

}  // namespace

const NumberFunction* find_number_function(std::string_view name) {
  const auto found = std::ranges::find(number_functions, name, &NumberFunction::name);
  return found == number_functions.end() ? nullptr : &*found;
}

}  // namespace etude::inline v0::detail
