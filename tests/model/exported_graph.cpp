#include "etude/model/exported_graph.hpp"

#include <ATen/core/op_registration/op_registration.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/exported_model.hpp"
#include "common/fault_of.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/model/exported_graph_reader.hpp"

namespace model_exported_graph_test {

using toy::contains;
using toy::fault_of;
namespace x = toy::exported;
using Values = std::vector<c10::IValue>;

etude::detail::ExportedGraph read(const std::string& text) {
  return etude::detail::read_graph(etude::detail::exported_json(text, "m"), torch::kCPU, "m");
}
Values run(const std::string& graph, Values given, bool training = true) {
  return read(graph).run(std::move(given), training);
}
// Runs a graph with the input a and these nodes, the last of which computes y, and returns y.
torch::Tensor of_a(const x::Texts& nodes, const torch::Tensor& a) {
  return run(x::graph({x::tensor("a")}, nodes, {x::tensor("y")}), {a}).at(0).toTensor();
}
torch::Tensor numbers(std::initializer_list<double> values) {
  return torch::tensor(std::vector<double>(values)).to(torch::kFloat);
}

TEST_CASE("numbers take part in type promotion as numbers") {
  const auto add =
      x::call("aten.add.Tensor", {{"self", x::tensor("a")}, {"other", x::real(1.5)}}, {x::tensor("y")});
  const auto promoted = of_a({add}, torch::tensor({1, 2}, torch::kLong));
  CHECK((promoted.scalar_type() == torch::kFloat));
  CHECK(promoted.equal(numbers({2.5, 3.5})));
  CHECK((of_a({add}, numbers({1})).scalar_type() == torch::kFloat));
  CHECK((of_a({add}, numbers({1}).to(torch::kBFloat16)).scalar_type() == torch::kBFloat16));

  // The same holds for numbers that the graph computes.
  const x::Texts scaled{
      x::call("aten.sym_size.int", {{"self", x::tensor("a")}, {"dim", x::integer(0)}}, {x::size("n")}),
      x::call("_operator.truediv", {{"", x::size("n")}, {"", x::integer(4)}}, {x::any_real("r")}),
      x::call("aten.mul.Tensor", {{"self", x::tensor("a")}, {"other", x::any_real("r")}}, {x::tensor("y")})};
  const auto computed = of_a(scaled, numbers({4, 8}));
  CHECK((computed.scalar_type() == torch::kFloat));
  CHECK(computed.equal(numbers({2, 4})));
}

TEST_CASE("an operator writes into memory of the size of its output, and none of another") {
  const x::Texts nodes{
      x::call("aten.zeros_like.default", {{"self", x::tensor("a")}}, {x::tensor("z")}),
      x::call("aten.add.out", {{"self", x::tensor("a")}, {"other", x::tensor("b")}, {"out", x::tensor("z")}},
              {x::tensor("y")})};
  const auto graph = x::graph({x::tensor("a"), x::tensor("b")}, nodes, {x::tensor("z")});
  CHECK(run(graph, {numbers({1, 2}), numbers({3, 4})})[0].toTensor().equal(numbers({4, 6})));
  const auto fault = fault_of<etude::DataError>([&] { run(graph, {numbers({1}), numbers({3, 4})}); });
  CHECK(contains(fault, "aten::add) gives [2] for memory of sizes [1]"));
}

TEST_CASE("without an input, outputs lack that a write in place would have changed") {
  const x::Texts nodes{
      x::call("aten.mul.Tensor", {{"self", x::tensor("a")}, {"other", x::real(2)}}, {x::tensor("h")}),
      x::call("aten.add.Tensor", {{"self", x::tensor("h")}, {"other", x::real(1)}}, {x::tensor("before")}),
      x::call("aten.select.int", {{"self", x::tensor("h")}, {"dim", x::integer(0)}, {"index", x::integer(0)}},
              {x::tensor("view")}),
      x::call("aten.add_.Tensor", {{"self", x::tensor("view")}, {"other", x::tensor("b")}},
              {x::tensor("written")}),
      x::call("aten.add.Tensor", {{"self", x::tensor("h")}, {"other", x::real(1)}}, {x::tensor("after")})};
  const auto graph = read(x::graph({x::tensor("a"), x::tensor("b")}, nodes,
                                   {x::tensor("before"), x::tensor("h"), x::tensor("after")}));
  const auto whole = graph.run({numbers({1, 2}), torch::tensor(5.0F)}, true);
  CHECK(whole[1].toTensor().equal(numbers({7, 4})));
  CHECK(whole[2].toTensor().equal(numbers({8, 5})));
  const auto part = graph.pruned({false, true}).run({numbers({1, 2}), {}}, true);
  CHECK(part[0].toTensor().equal(numbers({3, 5})));
  CHECK(part[1].isNone());
  CHECK(part[2].isNone());
}

TEST_CASE("a slice that takes everything goes, unless it is reshaped in place") {
  const auto whole = R"({"as_int": 9223372036854775807})";
  const auto slice =
      x::call("aten.slice.Tensor",
              {{"self", x::tensor("a")}, {"dim", x::integer(0)}, {"start", x::integer(0)}, {"end", whole}},
              {x::tensor("s")});
  const auto part =
      x::call("aten.slice.Tensor",
              {{"self", x::tensor("a")}, {"dim", x::integer(0)}, {"start", x::integer(1)}, {"end", whole}},
              {x::tensor("s")});
  const auto sum = x::call("aten.sum.dim_IntList", {{"self", x::tensor("a")}, {"dim", x::integers({0})}},
                           {x::tensor("y")});
  const auto transpose = x::call("aten.t_.default", {{"self", x::tensor("s")}}, {x::tensor("t")});
  const auto simplified = [](const x::Texts& nodes, const std::string& output) {
    auto graph = read(x::graph({x::tensor("a")}, nodes, {x::tensor("y"), x::tensor(output)}));
    simplify(graph);
    return graph;
  };
  const auto a = numbers({1, 2, 3, 4, 5, 6}).reshape({2, 3});
  const auto gone = simplified({slice, sum}, "s");
  CHECK(gone.nodes.size() == 1);
  CHECK(gone.run({a}, true)[1].toTensor().equal(a));
  CHECK(simplified({part, sum}, "s").nodes.size() == 2);
  const auto kept = simplified({slice, transpose, sum}, "t");
  CHECK(kept.nodes.size() == 3);
  const auto results = kept.run({a}, true);
  CHECK(results[0].toTensor().equal(numbers({5, 7, 9})));
  CHECK(results[1].toTensor().sizes() == torch::IntArrayRef({3, 2}));
}

TEST_CASE("the operators of gelu_new become one, with the same numbers and gradients") {
  const auto node = [](const std::string& name, const std::string& self, const std::string& other,
                       const std::string& output) {
    return x::call(name, {{"self", x::tensor(self)}, {"other", other}}, {x::tensor(output)});
  };
  const x::Texts nodes{node("aten.mul.Tensor", "a", x::real(0.5), "half"),
                       x::call("aten.pow.Tensor_Scalar",
                               {{"self", x::tensor("a")}, {"exponent", x::real(3.0)}}, {x::tensor("cube")}),
                       node("aten.mul.Tensor", "cube", R"({"as_float": 0.044715})", "scaled"),
                       node("aten.add.Tensor", "a", x::tensor("scaled"), "sum"),
                       node("aten.mul.Tensor", "sum", R"({"as_float": 0.7978845608028654})", "inner"),
                       x::call("aten.tanh.default", {{"self", x::tensor("inner")}}, {x::tensor("tanh")}),
                       node("aten.add.Tensor", "tanh", x::real(1.0), "gate"),
                       node("aten.mul.Tensor", "half", x::tensor("gate"), "y")};
  const auto graph = read(x::graph({x::tensor("a")}, nodes, {x::tensor("y")}));
  auto fused = graph;
  simplify(fused);
  CHECK(fused.nodes.size() == 1);
  const auto a = torch::linspace(-4, 4, 33).requires_grad_(), b = a.detach().clone().requires_grad_();
  const auto expected = graph.run({a}, true)[0].toTensor(), seen = fused.run({b}, true)[0].toTensor();
  CHECK(torch::allclose(seen, expected, 1e-5, 1e-6));
  expected.sum().backward();
  seen.sum().backward();
  CHECK(torch::allclose(b.grad(), a.grad(), 1e-4, 1e-5));

  // The value of tanh is used elsewhere, too.
  auto shared = read(x::graph({x::tensor("a")}, nodes, {x::tensor("y"), x::tensor("tanh")}));
  simplify(shared);
  CHECK(shared.nodes.size() == 8);
}

TEST_CASE("sizes are computed, and lists take them") {
  const x::Texts nodes{
      x::call("aten.sym_size.int", {{"self", x::tensor("a")}, {"dim", x::integer(1)}}, {x::size("n")}),
      x::call("_operator.floordiv", {{"", x::size("n")}, {"", x::integer(2)}}, {x::size("half")}),
      x::call(
          "aten.view.default",
          {{"self", x::tensor("a")}, {"size", R"({"as_sym_ints": [{"as_int": -1}, {"as_name": "half"}]})"}},
          {x::tensor("y")})};
  CHECK(of_a(nodes, torch::zeros({3, 4})).sizes() == torch::IntArrayRef({6, 2}));
  CHECK(of_a(nodes, torch::zeros({1, 10})).sizes() == torch::IntArrayRef({2, 5}));
  const auto zero = fault_of<etude::DataError>([&] {
    of_a({nodes[0], x::call("_operator.mod", {{"", x::integer(1)}, {"", x::size("n")}}, {x::size("half")}),
          nodes[2]},
         torch::zeros({3, 0}));
  });
  CHECK(contains(zero, "divides a size by zero"));
}

TEST_CASE("an integer stands for a list, and an integer for a real") {
  CHECK(of_a({x::call("aten.sum.dim_IntList", {{"self", x::tensor("a")}, {"dim", x::integers({0})}},
                      {x::tensor("y")})},
             torch::ones({2, 3}))
            .equal(numbers({2, 2, 2})));
  CHECK(of_a({x::call("aten.avg_pool2d.default", {{"self", x::tensor("a")}, {"kernel_size", x::integer(2)}},
                      {x::tensor("y")})},
             torch::ones({1, 4, 4}))
            .sizes() == torch::IntArrayRef({1, 2, 2}));
  CHECK(of_a({x::call("aten.leaky_relu.default",
                      {{"self", x::tensor("a")}, {"negative_slope", x::integer(2)}}, {x::tensor("y")})},
             numbers({-1, 1}))
            .equal(numbers({-2, 1})));
}

TEST_CASE("an empty list is of any kind") {
  const auto zeros = x::call("aten.zeros.default", {{"size", x::tensors({})}}, {x::tensor("y")});
  CHECK(of_a({zeros}, numbers({1})).dim() == 0);
}

TEST_CASE("absent arguments take the operator's defaults") {
  CHECK(of_a({x::call("aten.softmax.int",
                      {{"self", x::tensor("a")}, {"dim", x::integer(0)}, {"dtype", x::dtype(8)}},
                      {x::tensor("y")})},
             numbers({0, 0}))
            .equal(torch::tensor({0.5, 0.5}, torch::kDouble)));
  CHECK(of_a({x::call("aten.softmax.int", {{"self", x::tensor("a")}, {"dim", x::integer(0)}},
                      {x::tensor("y")})},
             numbers({0, 0}))
            .equal(numbers({0.5, 0.5})));
}

TEST_CASE("lists of tensors, with and without gaps, and outputs that are lists") {
  const auto a = torch::arange(6).to(torch::kFloat).reshape({2, 3});
  const auto rows = torch::tensor({1, 0}, torch::kLong);
  const auto split = x::call("aten.split.Tensor", {{"self", x::tensor("a")}, {"split_size", x::integer(1)}},
                             {x::tensors({"first", "second"})});
  const auto cat =
      x::call("aten.cat.default", {{"tensors", x::tensors({"second", "first", "second"})}}, {x::tensor("y")});
  CHECK(of_a({split, cat}, a).equal(torch::cat({a[1], a[0], a[1]}).reshape({3, 3})));
  const auto index =
      x::call("aten.index.Tensor",
              {{"self", x::tensor("a")},
               {"indices", R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "i"}}]})"}},
              {x::tensor("y")});
  const auto got = run(x::graph({x::tensor("a"), x::tensor("i")}, {index}, {x::tensor("y")}), {a, rows});
  CHECK(got[0].toTensor().equal(torch::tensor({{1, 0}, {4, 3}}).to(torch::kFloat)));

  const auto fault = fault_of<etude::DataError>([&] { of_a({split, cat}, torch::zeros({3, 3})); });
  CHECK(contains(fault, "gives 3 tensors, but 2 when the model was exported"));
}

TEST_CASE("several outputs, of which some have no name") {
  const auto node =
      x::call("aten.max.dim", {{"self", x::tensor("a")}, {"dim", x::integer(0)}}, {x::tensor("v"), x::none});
  const auto got =
      run(x::graph({x::tensor("a")}, {node}, {x::tensor("v"), x::none, x::integer(3)}), {numbers({1, 5, 2})});
  CHECK(got[0].toTensor().item<float>() == 5);
  CHECK(got[1].isNone());
  CHECK(got[2].toInt() == 3);
}

// The live results of the custom operator below.
std::vector<std::weak_ptr<int>> living;
int most_alive = 0;
TEST_CASE("values are freed where they are last used") {
  living.clear();
  most_alive = 0;
  static float memory = 0;
  static const auto library =
      torch::RegisterOperators().op("etude_graph_test::tracked(Tensor x) -> Tensor", [](torch::Tensor) {
        auto token = std::make_shared<int>(0);
        living.push_back(token);
        int alive = 0;
        for (const auto& each : living) alive += !each.expired();
        most_alive = std::max(most_alive, alive);
        return torch::from_blob(
            &memory, {1}, [token](void*) {}, torch::kFloat);
      });
  x::Texts nodes;
  for (int i = 0; i < 10; ++i)
    nodes.push_back(x::call("etude_graph_test.tracked.default",
                            {{"x", x::tensor(i ? fmt::format("t{}", i - 1) : "a")}},
                            {x::tensor(i < 9 ? fmt::format("t{}", i) : "y")}));
  const auto graph = read(x::graph({x::tensor("a")}, nodes, {x::tensor("y")}));
  {
    const torch::NoGradGuard no_grad;
    const auto result = graph.run({torch::zeros({1})}, true);
  }
  CHECK(living.size() == 10);
  // A node's argument lives until the node has run.
  CHECK(most_alive <= 2);
  for (const auto& each : living) CHECK(each.expired());

  // An unused value is freed at once; a value that is used twice is freed only after its second use.
  living.clear();
  most_alive = 0;
  const auto unused = read(x::graph(
      {x::tensor("a")},
      {x::call("etude_graph_test.tracked.default", {{"x", x::tensor("a")}}, {x::tensor("u")}),
       x::call("etude_graph_test.tracked.default", {{"x", x::tensor("a")}}, {x::tensor("v")}),
       x::call("aten.add.Tensor", {{"self", x::tensor("v")}, {"other", x::tensor("v")}}, {x::tensor("y")})},
      {x::tensor("y")}));
  CHECK(unused.run({torch::zeros({1})}, true)[0].toTensor().item<float>() == 0);
  CHECK(most_alive == 1);
}

TEST_CASE("an operator's error names its node") {
  const auto matmul =
      x::call("aten.matmul.default", {{"self", x::tensor("a")}, {"other", x::tensor("a")}}, {x::tensor("y")});
  auto named = matmul;
  named.insert(1, R"("name": "attention_1", )");
  const auto message = [](auto&& act) -> std::string {
    try {
      act();
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "nothing was thrown";
  };
  CHECK(contains(message([&] { of_a({named}, torch::ones({2, 3})); }), "node attention_1 (aten::matmul): "));
  const auto region = x::call("higher_order.wrap_with_set_grad_enabled",
                              {{"", x::flag(false)},
                               {"", x::as_graph(x::graph({x::tensor("a")}, {named}, {x::tensor("y")}))},
                               {"", x::tensor("a")}},
                              {x::tensor("y")});
  CHECK(contains(message([&] { of_a({region}, torch::ones({2, 3})); }), "node attention_1 (aten::matmul): "));
}

std::string doubled_in(const std::string& target, const x::Named& settings) {
  auto arguments = settings;
  arguments.emplace_back(
      "",
      x::as_graph(x::graph({x::tensor("b")},
                           {x::call("aten.matmul.default",
                                    {{"self", x::tensor("b")}, {"other", x::tensor("b")}}, {x::tensor("z")})},
                           {x::tensor("z")})));
  arguments.emplace_back("", x::tensor("a"));
  return x::call("higher_order." + target, arguments, {x::tensor("y")});
}

TEST_CASE("a region without gradients records none, and what follows does") {
  const auto a = torch::ones({2, 2}).requires_grad_();
  const auto off = doubled_in("wrap_with_set_grad_enabled", {{"", x::flag(false)}});
  const auto add =
      x::call("aten.mul.Tensor", {{"self", x::tensor("y")}, {"other", x::tensor("a")}}, {x::tensor("w")});
  const auto got = run(x::graph({x::tensor("a")}, {off, add}, {x::tensor("y"), x::tensor("w")}), {a});
  CHECK_FALSE(got[0].toTensor().requires_grad());
  CHECK(got[1].toTensor().requires_grad());
  const torch::NoGradGuard no_grad;
  const auto on = doubled_in("wrap_with_set_grad_enabled", {{"", x::flag(true)}});
  CHECK(of_a({on}, a).requires_grad());
  CHECK_FALSE(torch::GradMode::is_enabled());
}

TEST_CASE("a region of autocast computes in its type, or in full precision") {
  const auto a = torch::ones({2, 2});
  const std::string cpu = R"({"as_string": "cpu"})";
  const auto with = [&](const std::string& type, bool enabled) {
    return doubled_in("wrap_with_autocast",
                      {{"", cpu}, {"", type}, {"", x::flag(enabled)}, {"", x::flag(true)}});
  };
  CHECK((of_a({with(x::dtype(13), true)}, a).scalar_type() == torch::kBFloat16));
  CHECK((of_a({with(x::none, true)}, a).scalar_type() == torch::kBFloat16));
  CHECK((of_a({with(x::none, false)}, a).scalar_type() == torch::kFloat));
  const etude::AutocastGuard outside(torch::kCPU, torch::kBFloat16);
  CHECK((of_a({with(x::none, false)}, a).scalar_type() == torch::kFloat));
  CHECK((etude::autocast_in_force(torch::kCPU) == torch::kBFloat16));
}

std::string add_graph(const std::string& in, double number) {
  return x::as_graph(x::graph(
      {x::tensor(in)},
      {x::call("aten.add.Tensor", {{"self", x::tensor(in)}, {"other", x::real(number)}}, {x::tensor("z")})},
      {x::tensor("z")}));
}

TEST_CASE("cond runs one of its graphs") {
  const x::Texts nodes{
      x::call("aten.sum.default", {{"self", x::tensor("a")}}, {x::tensor("s")}),
      x::call("aten.gt.Scalar", {{"self", x::tensor("s")}, {"other", x::integer(0)}}, {x::tensor("p")}),
      x::call(
          "higher_order.cond",
          {{"", x::tensor("p")}, {"", add_graph("b", 1)}, {"", add_graph("b", -1)}, {"", x::tensors({"a"})}},
          {x::tensor("y")})};
  CHECK(of_a(nodes, numbers({1, 2})).equal(numbers({2, 3})));
  CHECK(of_a(nodes, numbers({-1, -2})).equal(numbers({-2, -3})));
  const auto a = numbers({3}).requires_grad_();
  of_a(nodes, a).sum().backward();
  CHECK(a.grad().item<float>() == 1);

  const x::Texts by_size{
      x::call("aten.sym_size.int", {{"self", x::tensor("a")}, {"dim", x::integer(0)}}, {x::size("n")}),
      x::call("_operator.gt", {{"", x::size("n")}, {"", x::integer(1)}}, {x::any_flag("p")}),
      x::call("higher_order.cond",
              {{"", x::any_flag("p")},
               {"", add_graph("b", 1)},
               {"", add_graph("b", -1)},
               {"", x::tensors({"a"})}},
              {x::tensor("y")})};
  CHECK(of_a(by_size, numbers({0, 0})).equal(numbers({1, 1})));
  CHECK(of_a(by_size, numbers({0})).equal(numbers({-1})));
}

TEST_CASE("while_loop repeats its body") {
  const auto holds = x::as_graph(x::graph(
      {x::tensor("i"), x::tensor("k")},
      {x::call("aten.lt.Tensor", {{"self", x::tensor("i")}, {"other", x::tensor("k")}}, {x::tensor("p")})},
      {x::tensor("p")}));
  const auto body = x::as_graph(x::graph(
      {x::tensor("i"), x::tensor("k")},
      {x::call("aten.mul.Tensor", {{"self", x::tensor("i")}, {"other", x::integer(2)}}, {x::tensor("z")})},
      {x::tensor("z")}));
  const auto loop = x::call("higher_order.while_loop",
                            {{"", holds}, {"", body}, {"", x::tensors({"a"})}, {"", x::tensors({"limit"})}},
                            {x::tensor("y")});
  const auto got = run(x::graph({x::tensor("a"), x::tensor("limit")}, {loop}, {x::tensor("y")}),
                       {torch::tensor(3), torch::tensor(40)});
  CHECK(got[0].toTensor().item<std::int64_t>() == 48);
}

TEST_CASE("an absent input takes along what needs it, and what only that needed") {
  const auto graph = read(x::graph(
      {x::tensor("a"), x::tensor("labels")},
      {x::call("aten.relu.default", {{"self", x::tensor("a")}}, {x::tensor("logits")}),
       x::call("aten.exp.default", {{"self", x::tensor("a")}}, {x::tensor("only_for_loss")}),
       x::call("aten.sub.Tensor", {{"self", x::tensor("only_for_loss")}, {"other", x::tensor("labels")}},
               {x::tensor("d")}),
       x::call("aten.mean.default", {{"self", x::tensor("d")}}, {x::tensor("loss")})},
      {x::tensor("loss"), x::tensor("logits")}));
  const auto pruned = graph.pruned({false, true});
  CHECK(pruned.nodes.size() == 1);
  const auto got = pruned.run({numbers({-1, 1}), {}}, true);
  CHECK(got[0].isNone());
  CHECK(got[1].toTensor().equal(numbers({0, 1})));
}

TEST_CASE("a graph makes new tensors on the device that it is moved to") {
  const auto arange =
      x::call("aten.arange.default",
              {{"end", x::integer(3)}, {"device", R"({"as_device": {"type": "cpu", "index": null}})"}},
              {x::tensor("y")});
  const auto region = x::call(
      "higher_order.wrap_with_set_grad_enabled",
      {{"", x::flag(false)}, {"", x::as_graph(x::graph({}, {arange}, {x::tensor("y")}))}}, {x::tensor("z")});
  auto graph = read(x::graph({}, {arange, region}, {x::tensor("y"), x::tensor("z")}));
  CHECK(graph.run({}, true)[0].toTensor().is_cpu());
  graph.to(torch::kMeta);
  for (const auto& value : graph.run({}, true)) CHECK(value.toTensor().is_meta());
}

TEST_CASE("a number of another kind than its name says is refused where it is used") {
  const x::Texts nodes{
      x::call("_operator.truediv", {{"", x::integer(1)}, {"", x::integer(2)}}, {x::size("half")}),
      x::call("aten.select.int",
              {{"self", x::tensor("a")}, {"dim", x::integer(0)}, {"index", x::size("half")}},
              {x::tensor("y")})};
  CHECK_THROWS_AS(of_a(nodes, numbers({1})), c10::Error);
}

TEST_CASE("an undefined tensor that an operator gives is none to the next") {
  static const auto library = torch::RegisterOperators().op("etude_graph_test::nothing(Tensor x) -> Tensor",
                                                            [](torch::Tensor) { return torch::Tensor(); });
  const auto nothing = x::call("etude_graph_test.nothing.default", {{"x", x::tensor("a")}}, {x::tensor("n")});
  const torch::NoGradGuard no_grad;
  CHECK(run(x::graph({x::tensor("a")}, {nothing}, {x::tensor("n")}), {numbers({1})})[0].isNone());
  const auto relu = x::call("aten.relu.default", {{"self", x::tensor("n")}}, {x::tensor("y")});
  CHECK_THROWS_AS(of_a({nothing, relu}, numbers({1})), c10::Error);
  const auto linear = x::call(
      "aten.linear.default",
      {{"input", x::tensor("a")}, {"weight", x::tensor("a")}, {"bias", x::tensor("n")}}, {x::tensor("y")});
  CHECK(of_a({nothing, linear}, torch::ones({1, 1})).item<float>() == 1);
}

}  // namespace model_exported_graph_test
