#include "etude/model/exported_sizes.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/fault_of.hpp"

namespace model_exported_sizes_test {

using etude::detail::SizeExpression;
using etude::detail::SizeVariable;
using toy::contains;
using toy::fault_of;

double value(const std::string& text, const std::vector<std::int64_t>& values = {}) {
  return SizeExpression(text, "m.pt2").evaluate(values).toScalar().toDouble();
}

// Every expected value here is what Python prints.
TEST_CASE("operators have Python's precedence") {
  CHECK(value("1 + 2*3 - 4") == 3);
  CHECK(value("(1 + 2)*3") == 9);
  CHECK(value("7 - 2 - 1") == 4);
  CHECK(value("-7 // 2") == -4);
  CHECK(value("-2 ** 2") == -4);
  CHECK(value("2 ** 3 ** 2") == 512);
  CHECK(value("2 ** -1") == 0.5);
  CHECK(value("7 / 2 * 2") == 7);
  CHECK(value("17 % 5 // 2") == 1);
  CHECK(value("1 + 1 == 2 and not 3 < 2") == 1);
  CHECK(value("1 > 2 or 2 >= 2") == 1);
  CHECK(value("1 != 1 or 2 <= 1") == 0);
  CHECK(value("5 if 1 < 2 else 6 if 3 < 2 else 7") == 5);
  CHECK(value("5 if 2 < 1 else 6 if 3 < 2 else 7") == 7);
  CHECK(value("max(1, 5, 3) - min(4, 2)") == 3);
  CHECK(value("math.floor(-0.5) + math.ceil(1.2e1 / 8) + abs(-3) + math.trunc(-1.5)") == 3);
  CHECK(value("torch._sym_sqrt(torch.sym_float(16))") == 4);
  CHECK(value("3 < math.inf") == 1);
}

TEST_CASE("SymPy's constructors are functions") {
  CHECK(value("Add(Mul(Integer(2), Symbol('s0', positive=True, integer=True)), Integer(-3))", {5}) == 7);
  CHECK(value("FloorDiv(Symbol('s0', integer=True), Integer(2))", {7}) == 3);
  CHECK(value("Mod(Pow(Symbol('s0'), Integer(2)), Integer(10))", {7}) == 9);
  CHECK(value("Add(Integer(1), Integer(2), Integer(3), Integer(4))") == 10);
  CHECK(value("Max(Integer(1), Rational(Integer(5), Integer(2)))") == 2.5);
}

TEST_CASE("variables are sizes of inputs, by their path, and symbols") {
  const SizeExpression mixed(
      R"(L['d']["a"].size()[1] * s0 < L['l'][0].stride()[10] + L['p'].b.storage_offset() + L['d']['a'].size()[1])",
      "m.pt2");
  using Kind = SizeVariable::Kind;
  const std::vector<SizeVariable> expected{
      {Kind::size, "d_a", 1}, {Kind::symbol, "s0"}, {Kind::stride, "l_0", 10}, {Kind::storage_offset, "p_b"}};
  CHECK((mixed.variables() == expected));
  CHECK(mixed.text() == "d_a.size(1) * s0 < l_0.stride(10) + p_b.storage_offset() + d_a.size(1)");
  CHECK(mixed.evaluate({4, 3, 5, 4}).toBool());
  CHECK_FALSE(mixed.evaluate({4, 3, 5, 3}).toBool());
  CHECK((SizeExpression("L['n'] == 3", "").variables().front().kind == Kind::other));
  CHECK(SizeExpression("L['x'].size()[0] == L['y'].size()[0]", "").is_equality());
  CHECK_FALSE(SizeExpression("L['x'].size()[0] == 3", "").is_equality());
  CHECK(SizeExpression("Symbol('s0', integer=True)", "").is_symbol());
  CHECK_FALSE(SizeExpression("s0 + 1", "").is_symbol());
}

TEST_CASE("what can't be read is refused with the place") {
  const auto fault = [](const std::string& text) { return fault_of([&] { SizeExpression(text, "m.pt2"); }); };
  CHECK(fault("1 +") == "m.pt2: can't read the condition of sizes '1 +': unexpected end");
  CHECK(contains(fault("1 2"), "unexpected '2'"));
  CHECK(contains(fault("(1"), "unexpected end"));
  CHECK(contains(fault("f(1)"), "'f' of 1 arguments isn't supported"));
  CHECK(contains(fault("Mod(1, 2, 3)"), "'Mod' of 3 arguments isn't supported"));
  CHECK(contains(fault("L['x'].numel() == 1"), "'numel' of an input isn't supported"));
  CHECK(contains(fault("L['x"), "unexpected ''x'"));
  CHECK(contains(fault("99999999999999999999"), "a number of more than 64 bits"));
  CHECK(contains(fault(std::string(200, '(')), "nested more than 100 deep"));
  CHECK(contains(fault(std::string(200, '-') + "1"), "nested more than 100 deep"));
  CHECK(contains(fault("os.remove"), "unexpected end"));
  CHECK(contains(fault("x = 1"), "unexpected '= 1'"));
}

}  // namespace model_exported_sizes_test
