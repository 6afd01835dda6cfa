#include "etude/model/exported_numbers.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/fault_of.hpp"

namespace model_exported_numbers_test {

using toy::contains;
using toy::fault_of;
using Stack = torch::jit::Stack;

c10::IValue call(const std::string& name, Stack arguments) {
  const auto* function = etude::detail::find_number_function(name);
  REQUIRE(function);
  REQUIRE(function->arguments == arguments.size());
  function->call(arguments);
  REQUIRE(arguments.size() == 1);
  return arguments[0];
}
std::int64_t integer(const std::string& name, Stack arguments) {
  const auto result = call(name, std::move(arguments));
  REQUIRE(result.isInt());
  return result.toInt();
}
double real(const std::string& name, Stack arguments) {
  const auto result = call(name, std::move(arguments));
  REQUIRE(result.isDouble());
  return result.toDouble();
}
bool flag(const std::string& name, Stack arguments) {
  const auto result = call(name, std::move(arguments));
  REQUIRE(result.isBool());
  return result.toBool();
}

// Every expected value here is what Python prints.
TEST_CASE("division and its rest are Python's for every sign") {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::vector{integer("_operator.floordiv", {a, b}), integer("_operator.mod", {a, b})};
  };
  CHECK(pair(7, 2) == std::vector<std::int64_t>{3, 1});
  CHECK(pair(-7, 2) == std::vector<std::int64_t>{-4, 1});
  CHECK(pair(7, -2) == std::vector<std::int64_t>{-4, -1});
  CHECK(pair(-7, -2) == std::vector<std::int64_t>{3, -1});
  CHECK(pair(-6, 2) == std::vector<std::int64_t>{-3, 0});
  CHECK(pair(6, -1) == std::vector<std::int64_t>{-6, 0});
  CHECK(real("_operator.floordiv", {7.5, std::int64_t{2}}) == 3);
  CHECK(real("_operator.floordiv", {-7.5, 2.0}) == -4);
  CHECK(real("_operator.floordiv", {1.0, 0.1}) == 9);
  CHECK(real("_operator.mod", {-7.5, 2.0}) == 0.5);
  CHECK(real("_operator.mod", {7.5, -2.0}) == -0.5);
  CHECK(real("_operator.mod", {1.0, 0.1}) == doctest::Approx(0.09999999999999995).epsilon(1e-15));
  CHECK(real("_operator.truediv", {std::int64_t{7}, std::int64_t{2}}) == 3.5);
}

TEST_CASE("the least integer, which no negation has, is divided all the same") {
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  CHECK(integer("_operator.mod", {least, std::int64_t{-1}}) == 0);
  CHECK(integer("_operator.floordiv", {least, std::int64_t{-1}}) == least);
  CHECK(integer("_operator.neg", {least}) == least);
  CHECK(integer("_operator.mul", {least, std::int64_t{-1}}) == least);
}

TEST_CASE("a division by zero is a DataError") {
  for (const std::string name : {"_operator.floordiv", "_operator.mod", "_operator.truediv"}) {
    CAPTURE(name);
    CHECK(contains(fault_of<etude::DataError>([&] {
                     call(name, {std::int64_t{1}, std::int64_t{0}});
                   }),
                   "divides a size by zero"));
    CHECK(contains(fault_of<etude::DataError>([&] { call(name, {1.0, 0.0}); }), "divides a size by zero"));
  }
}

TEST_CASE("integers stay integers, and reals make reals") {
  CHECK(integer("_operator.add", {std::int64_t{3}, std::int64_t{4}}) == 7);
  CHECK(integer("_operator.sub", {std::int64_t{3}, std::int64_t{4}}) == -1);
  CHECK(integer("_operator.mul", {std::int64_t{3}, true}) == 3);
  CHECK(real("_operator.mul", {std::int64_t{3}, 0.5}) == 1.5);
  CHECK(real("_operator.sub", {0.5, std::int64_t{3}}) == -2.5);
  CHECK(integer("_operator.pow", {std::int64_t{-3}, std::int64_t{3}}) == -27);
  CHECK(real("_operator.pow", {std::int64_t{2}, std::int64_t{-2}}) == 0.25);
  CHECK(real("_operator.pow", {2.0, 0.5}) == doctest::Approx(1.4142135623730951));
  CHECK(integer("_operator.neg", {std::int64_t{3}}) == -3);
  CHECK(real("_operator.neg", {1.5}) == -1.5);
  CHECK(integer("_operator.pos", {std::int64_t{3}}) == 3);
  CHECK(integer("_operator.lshift", {std::int64_t{3}, std::int64_t{4}}) == 48);
  CHECK(integer("_operator.rshift", {std::int64_t{-3}, std::int64_t{1}}) == -2);
  CHECK(integer("math.trunc", {-2.7}) == -2);
  CHECK(integer("torch.sym_int", {2.7}) == 2);
  CHECK(real("torch.sym_float", {std::int64_t{2}}) == 2);
  CHECK(real("torch.sym_sqrt", {std::int64_t{9}}) == 3);
  CHECK(integer("torch.sym_max", {std::int64_t{2}, std::int64_t{5}}) == 5);
  CHECK(integer("torch.sym_min", {std::int64_t{2}, std::int64_t{5}}) == 2);
}

TEST_CASE("comparisons and logic give bools") {
  CHECK(flag("_operator.eq", {std::int64_t{2}, 2.0}));
  CHECK_FALSE(flag("_operator.ne", {std::int64_t{2}, std::int64_t{2}}));
  CHECK(flag("_operator.lt", {std::int64_t{-1}, std::int64_t{0}}));
  CHECK(flag("_operator.le", {std::int64_t{0}, std::int64_t{0}}));
  CHECK_FALSE(flag("_operator.gt", {std::int64_t{0}, std::int64_t{0}}));
  CHECK(flag("_operator.ge", {std::int64_t{0}, std::int64_t{0}}));
  CHECK_FALSE(flag("_operator.and_", {true, false}));
  CHECK(flag("_operator.or_", {true, false}));
  CHECK(integer("_operator.and_", {std::int64_t{13}, std::int64_t{6}}) == 4);
  CHECK(integer("_operator.or_", {std::int64_t{13}, std::int64_t{6}}) == 15);
  CHECK(flag("torch.sym_not", {false}));
  CHECK(integer("torch.sym_ite", {false, std::int64_t{1}, std::int64_t{2}}) == 2);
}

TEST_CASE("other functions have no such name") {
  CHECK(etude::detail::find_number_function("os.system") == nullptr);
  CHECK(etude::detail::find_number_function("") == nullptr);
}

}  // namespace model_exported_numbers_test
