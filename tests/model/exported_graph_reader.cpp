#include "etude/model/exported_graph_reader.hpp"

#include <ATen/core/op_registration/op_registration.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <string>

#include "common/exported_model.hpp"
#include "common/fault_of.hpp"

namespace model_exported_graph_reader_test {

using toy::contains;
using toy::fault_of;
namespace x = toy::exported;

std::string fault_in(const std::string& text) {
  const auto fault = fault_of([&] {
    etude::detail::read_graph(etude::detail::exported_json(text, "m.pt2: models/m.json"), torch::kCPU,
                              "m.pt2: models/m.json");
  });
  if (fault != "nothing was thrown") CHECK(fault.starts_with("m.pt2: models/m.json: "));
  return fault;
}
// The error for a graph of these nodes with the inputs a and b; n is the size of a.
std::string fault_with(const x::Texts& nodes, const x::Texts& outputs = {x::tensor("y")}) {
  x::Texts all{
      x::call("aten.sym_size.int", {{"self", x::tensor("a")}, {"dim", x::integer(0)}}, {x::size("n")})};
  all.insert(all.end(), nodes.begin(), nodes.end());
  return fault_in(x::graph({x::tensor("a"), x::tensor("b")}, all, outputs));
}
std::string fault_of_call(const std::string& target, const x::Named& arguments,
                          const x::Texts& outputs = {x::tensor("y")}) {
  return fault_with({x::call(target, arguments, outputs)});
}

TEST_CASE("an operator that this program doesn't have is named, with the remedy") {
  CHECK(contains(fault_of_call("aten.no_such.default", {}), "has no operator aten::no_such"));
  CHECK(contains(fault_of_call("aten.add.NoSuch", {}), "has no operator aten::add.NoSuch"));
  CHECK(
      contains(fault_of_call("my_library.op.default", {}),
               "node torch.ops.my_library.op.default: the operator my_library::op isn't known: register it"));
  CHECK(contains(fault_of_call("aten", {}), "'aten' isn't the name of an operator"));
  CHECK(contains(fault_of_call("aten.add", {}), "'aten.add' isn't the name of an operator"));
  CHECK(contains(fault_of_call("transformers.grouped_mm.default", {}),
                 "transformers::grouped_mm exists in Python only: export the model with tools/export.py"));
  CHECK(contains(fault_of_call("_operator.matmul", {}), "the function '_operator.matmul' isn't known"));
  CHECK(contains(fault_of_call("higher_order.scan", {}), "the higher-order operator 'scan' isn't supported"));
}

TEST_CASE("operators that this program registered are allowed") {
  static const auto library = torch::RegisterOperators().op("etude_reader_test::same(Tensor x) -> Tensor",
                                                            [](torch::Tensor t) { return t; });
  CHECK(fault_of_call("etude_reader_test.same.default", {{"x", x::tensor("a")}}) == "nothing was thrown");
}

TEST_CASE("operators that touch files or memory of others are refused") {
  const x::Named file{
      {"filename", R"({"as_string": "/etc/passwd"})"}, {"shared", x::flag(true)}, {"size", x::integer(9)}};
  CHECK(contains(fault_of_call("aten.from_file.default", file), "aten::from_file isn't allowed"));
  for (const std::string name :
       {"aten.set_.source_Tensor", "aten.resize_.default", "aten.set_data.default",
        "aten._reshape_alias.default", "aten.max_pool2d_with_indices_backward.default",
        "aten._backward.default", "aten._sparse_coo_tensor_unsafe.default",
        "aten._nested_view_from_buffer.default", "inductor._reinterpret_tensor.default",
        "inductor.resize_storage_bytes_.default", "quantized.add.default",
        "_c10d_functional.all_reduce.default"}) {
    CAPTURE(name);
    const auto fault = fault_of_call(name, {{"self", x::tensor("a")}});
    CHECK(contains(fault, "isn't allowed: it trusts its arguments"));
  }
  CHECK(contains(
      fault_of_call("aten.add.out", {{"self", x::tensor("a")}, {"other", x::tensor("a")}, {"out", x::none}}),
      "argument 'out' of aten::add.out: it is an output's memory: must be one tensor"));
  // Operators with similar names, which models use, are allowed.
  CHECK(fault_of_call("aten._unsafe_view.default", {{"self", x::tensor("a")}, {"size", x::integers({1})}}) ==
        "nothing was thrown");
}

TEST_CASE("arguments are those of the operator") {
  const x::Named good{{"self", x::tensor("a")}, {"other", x::tensor("b")}};
  CHECK(fault_of_call("aten.add.Tensor", good) == "nothing was thrown");
  CHECK(contains(fault_of_call("aten.add.Tensor", {{"self", x::tensor("a")}}),
                 "aten::add.Tensor needs its argument 'other'"));
  auto more = good;
  more.emplace_back("beta", x::integer(1));
  CHECK(contains(fault_of_call("aten.add.Tensor", more), "aten::add.Tensor has no argument 'beta'"));
  more.back().first = "self";
  CHECK(contains(fault_of_call("aten.add.Tensor", more), "argument 'self' is given twice"));
}

TEST_CASE("arguments have the operator's types") {
  const auto clamp = [](const std::string& least) {
    return fault_of_call("aten.clamp.default", {{"self", x::tensor("a")}, {"min", least}});
  };
  CHECK(clamp(x::integer(1)) == "nothing was thrown");
  CHECK(clamp(x::size("n")) == "nothing was thrown");
  CHECK(clamp(x::none) == "nothing was thrown");
  CHECK(contains(clamp(R"({"as_string": "1"})"), "argument 'min' of aten::clamp: it must be "));
  CHECK(contains(clamp(x::tensor("b")), "argument 'min' of aten::clamp: it must be "));
  const auto dropout = [](const std::string& p, const std::string& train) {
    return fault_of_call("aten.dropout.default", {{"input", x::tensor("a")}, {"p", p}, {"train", train}});
  };
  CHECK(dropout(x::real(0.5), x::flag(true)) == "nothing was thrown");
  CHECK(contains(dropout(x::flag(true), x::flag(true)), "'p' of aten::dropout: it must be float"));
  CHECK(contains(dropout(x::tensor("b"), x::flag(true)), "'p' of aten::dropout: it must be float"));
  CHECK(contains(dropout(x::real(0.5), x::integer(1)), "'train' of aten::dropout: it must be bool"));
  CHECK(contains(dropout(x::real(0.5), x::none), "'train' of aten::dropout: it must be bool"));
  CHECK(contains(dropout(x::real(0.5), x::size("n")), "'train' of aten::dropout: it must be bool"));
  const auto relu = [](const std::string& self) {
    return fault_of_call("aten.relu.default", {{"self", self}});
  };
  CHECK(contains(relu(x::none), "'self' of aten::relu: it must be Tensor"));
  CHECK(relu(x::integer(1)) == "nothing was thrown");  // a number stands for a tensor
  CHECK(contains(relu(x::tensors({"a"})), "as_tensors isn't supported there"));
  const auto sum = [](const std::string& dim) {
    return fault_of_call("aten.sum.dim_IntList", {{"self", x::tensor("a")}, {"dim", dim}});
  };
  CHECK(sum(R"({"as_sym_ints": [{"as_name": "n"}]})") == "nothing was thrown");
  CHECK(
      contains(sum(R"({"as_sym_ints": [{"as_name": "a"}]})"), "'dim' of aten::sum.dim_IntList: it must be "));
  CHECK(contains(sum(R"({"as_floats": [1.0]})"), "'dim' of aten::sum.dim_IntList: it must be "));
  CHECK(contains(sum(x::tensors({"a"})), "'dim' of aten::sum.dim_IntList: it must be "));
  CHECK(contains(sum(R"({"as_ints": [9223372036854775808]})"), "it isn't an integer of 64 bits"));
  const auto cat = [](const std::string& tensors) {
    return fault_of_call("aten.cat.default", {{"tensors", tensors}});
  };
  CHECK(contains(cat(x::tensors({"n"})), "'tensors' of aten::cat: it must be "));
  CHECK(contains(cat(x::tensors({""})), "'' is used before it is defined"));
  CHECK(contains(cat(x::none), "'tensors' of aten::cat: it must be "));
  CHECK(contains(cat(R"({"as_optional_tensors": [{"as_none": true}]})"),
                 "'tensors' of aten::cat: it must be "));
  // Writing to a constant number would change the model.
  CHECK(contains(fault_of_call("aten.add_.Tensor", {{"self", x::integer(1)}, {"other", x::tensor("a")}}),
                 "'self' of aten::add_.Tensor: it must be Tensor"));
}

TEST_CASE("dtypes, layouts and memory formats are names, not numbers") {
  const auto to = [](const std::string& dtype) {
    return fault_of_call("aten.to.dtype", {{"self", x::tensor("a")}, {"dtype", dtype}});
  };
  CHECK(to(x::dtype(13)) == "nothing was thrown");
  CHECK(contains(to(x::integer(99)), "'dtype' of aten::to.dtype: it must be "));
  CHECK(contains(to(x::size("n")), "'dtype' of aten::to.dtype: it must be "));
  CHECK(contains(to(x::dtype(99)), "99 isn't the number of a dtype"));
  CHECK(contains(to(x::dtype(-1)), "-1 isn't the number of a dtype"));
  const auto clone = [](const std::string& format) {
    return fault_of_call("aten.clone.default", {{"self", x::tensor("a")}, {"memory_format", format}});
  };
  CHECK(clone(R"({"as_memory_format": 1})") == "nothing was thrown");
  CHECK(contains(clone(R"({"as_memory_format": 5})"), "memory format 5: must be 1 to 4"));
  CHECK(contains(clone(x::integer(77)), "'memory_format' of aten::clone: it must be "));
  const auto zeros = [](const std::string& layout) {
    return fault_of_call("aten.zeros.default", {{"size", x::integers({2})}, {"layout", layout}});
  };
  CHECK(zeros(R"({"as_layout": 7})") == "nothing was thrown");
  CHECK(contains(zeros(R"({"as_layout": 1})"), "layout 1: only 7 (strided) is supported"));
  CHECK(contains(zeros(x::integer(7)), "'layout' of aten::zeros: it must be "));
  CHECK(contains(fault_of_call("aten.zeros.default", {{"size", x::integers({2})},
                                                      {"device", R"({"as_device": {"type": "moon"}})"}}),
                 "'moon' isn't a device"));
}

TEST_CASE("values are defined once, before they are used") {
  const auto relu = [](const std::string& from, const std::string& to) {
    return x::call("aten.relu.default", {{"self", x::tensor(from)}}, {x::tensor(to)});
  };
  CHECK(fault_with({relu("a", "y")}) == "nothing was thrown");
  CHECK(contains(fault_with({relu("y", "y")}), "'y' is used before it is defined"));
  CHECK(contains(fault_with({relu("c", "y"), relu("a", "c")}), "'c' is used before it is defined"));
  CHECK(contains(fault_with({relu("a", "a")}), "'a' is defined twice"));
  CHECK(contains(fault_with({relu("a", "y"), relu("b", "y")}), "'y' is defined twice"));
  CHECK(contains(fault_with({relu("a", "z")}), "an output: 'y' is used before it is defined"));
  CHECK(contains(fault_in(x::graph({x::tensor("a"), x::tensor("a")}, {}, {})),
                 "an input: 'a' is defined twice"));
  // A nested graph sees only its own values.
  const auto inner = x::as_graph(x::graph({}, {relu("a", "z")}, {x::tensor("z")}));
  CHECK(contains(fault_of_call("higher_order.wrap_with_set_grad_enabled", {{"", x::flag(true)}, {"", inner}}),
                 "'a' is used before it is defined"));
}

TEST_CASE("outputs are those of the operator") {
  const x::Named self{{"self", x::tensor("a")}};
  CHECK(contains(fault_of_call("aten.relu.default", self, {x::tensor("y"), x::tensor("z")}),
                 "it has 2 outputs, but aten::relu gives 1"));
  CHECK(contains(fault_of_call("aten.relu.default", self, {}), "it has 0 outputs, but aten::relu gives 1"));
  CHECK(contains(fault_of_call("aten.relu.default", self, {x::size("y")}),
                 "its output is of a different kind than its operator's"));
  CHECK(contains(fault_of_call("aten.unbind.int", self), "its output isn't a list of tensors"));
  CHECK(contains(fault_of_call("_operator.add", {{"", x::integer(1)}, {"", x::size("n")}}),
                 "its output must be one number"));
}

TEST_CASE("functions of numbers take numbers, as many as they need") {
  const auto add = [](const x::Named& arguments) {
    return fault_of_call("_operator.add", arguments, {x::size("y")});
  };
  CHECK(add({{"", x::integer(1)}, {"", x::size("n")}}) == "nothing was thrown");
  CHECK(contains(add({{"", x::integer(1)}}), "_operator.add takes 2 arguments, not 1"));
  CHECK(contains(add({{"", x::integer(1)}, {"", x::tensor("a")}}),
                 "the arguments of _operator.add must be numbers"));
  CHECK(
      contains(add({{"", x::integer(1)}, {"", x::none}}), "the arguments of _operator.add must be numbers"));
  const auto size = [](const x::Named& arguments) {
    return fault_of_call("aten.sym_size.int", arguments, {x::size("y")});
  };
  CHECK(contains(size({{"self", x::tensor("a")}}), "aten::sym_size takes 2 arguments, not 1"));
  CHECK(
      contains(size({{"self", x::size("n")}, {"dim", x::integer(0)}}), "its first argument isn't a tensor"));
  CHECK(contains(size({{"self", x::tensor("a")}, {"dim", x::real(0.5)}}),
                 "its second argument isn't an integer"));
}

std::string inner(const x::Texts& inputs, const std::string& output = x::tensor("z")) {
  return x::as_graph(x::graph(
      inputs, {x::call("aten.zeros.default", {{"size", x::integers({1})}}, {x::tensor("z")})}, {output}));
}

TEST_CASE("graphs in nodes fit their node") {
  const auto region = [](const x::Named& arguments, const x::Texts& outputs = {x::tensor("y")}) {
    return fault_of_call("higher_order.wrap_with_set_grad_enabled", arguments, outputs);
  };
  CHECK(region({{"", x::flag(true)}, {"", inner({x::tensor("t")})}, {"", x::tensor("a")}}) ==
        "nothing was thrown");
  CHECK(contains(region({{"", x::flag(true)}}), "it has 0 graphs"));
  CHECK(contains(region({{"", inner({})}}), "it doesn't say whether gradients are enabled"));
  CHECK(contains(region({{"", x::flag(true)}, {"", inner({x::tensor("t")})}}),
                 "its graph takes 1 inputs, not 0"));
  CHECK(contains(region({{"", x::flag(true)}, {"", inner({x::size("t")})}, {"", x::tensor("a")}}),
                 "its graph expects a different kind of value"));
  CHECK(contains(region({{"", x::flag(true)}, {"", inner({})}}, {x::tensor("y"), x::tensor("w")}),
                 "it has 2 outputs, but its graph 1"));
  CHECK(contains(region({{"", x::flag(true)}, {"", inner({}, x::integer(1))}}),
                 "its output is of a different kind than its graph's"));
  const auto autocast = [](const x::Named& settings) {
    auto arguments = settings;
    arguments.emplace_back("", inner({}));
    return fault_of_call("higher_order.wrap_with_autocast", arguments);
  };
  const std::string cpu = R"({"as_string": "cpu"})";
  CHECK(autocast({{"", cpu}, {"", x::dtype(13)}, {"", x::flag(true)}}) == "nothing was thrown");
  CHECK(
      contains(autocast({{"", cpu}, {"", x::integer(99)}, {"", x::flag(true)}}), "a setting is an integer"));
  CHECK(contains(autocast({{"", cpu}, {"", x::none}}), "it doesn't say the device, the dtype"));
  CHECK(contains(autocast({{"", R"({"as_string": "moon"})"}, {"", x::none}, {"", x::flag(true)}}),
                 "'moon' isn't a device"));
  CHECK(contains(fault_of_call("higher_order.cond", {{"", inner({})}, {"", inner({})}}),
                 "it has no condition"));
  CHECK(contains(fault_of_call("higher_order.cond", {{"", x::tensor("a")}, {"", inner({})}}),
                 "it has 1 graphs"));
  CHECK(contains(fault_of_call("higher_order.while_loop",
                               {{"", inner({x::tensor("t")})},
                                {"", inner({x::tensor("t")})},
                                {"", x::tensors({"a"})},
                                {"", x::tensors({})}},
                               {x::tensor("y"), x::tensor("w")}),
                 "it has 2 outputs, but carries 1 values"));
  CHECK(contains(fault_of_call("higher_order.while_loop", {{"", inner({})}, {"", inner({})}}),
                 "its graphs don't give what the loop needs"));
}

TEST_CASE("graphs that lie too deep in each other are refused") {
  auto graph = x::graph({}, {}, {});
  for (int i = 0; i < 40; ++i)
    graph = x::graph({},
                     {x::call("higher_order.wrap_with_set_grad_enabled",
                              {{"", x::flag(true)}, {"", x::as_graph(graph)}}, {})},
                     {});
  CHECK(contains(fault_in(graph), "nested deeper than 100 levels"));
}

TEST_CASE("JSON of other forms is refused") {
  for (
      const std::string text :
      {"[]", "{}", R"({"inputs": 1, "nodes": [], "outputs": []})",
       R"({"inputs": [], "nodes": {}, "outputs": []})", R"({"inputs": [], "nodes": [1], "outputs": []})",
       R"({"inputs": [{}], "nodes": [], "outputs": []})",
       R"({"inputs": [{"as_tensor": {}}], "nodes": [], "outputs": []})",
       R"({"inputs": [{"as_tensor": {"name": 1}}], "nodes": [], "outputs": []})",
       R"({"inputs": [], "nodes": [{"target": 1, "inputs": [], "outputs": []}], "outputs": []})",
       R"({"inputs": [], "nodes": [{"target": "torch.ops.aten.relu.default", "inputs": [1], "outputs": []}], "outputs": []})",
       R"({"inputs": [], "nodes": [], "outputs": [{"as_tensor": {"name": "x"}, "as_int": 1}]})",
       R"({"inputs": [], "nodes": [], "outputs": [{"as_custom_obj": {}}]})"}) {
    CAPTURE(text);
    CHECK(fault_in(text) != "nothing was thrown");
  }
  CHECK(contains(fault_in("{\"inputs\": \"\xff\"}"), "it isn't JSON"));
  CHECK(contains(fault_in("{"), "it isn't JSON"));
}

}  // namespace model_exported_graph_reader_test
