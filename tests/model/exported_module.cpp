#include "etude/model/exported_module.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/exported_model.hpp"
#include "common/fault_of.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/formats/safetensors.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace model_exported_module_test {

using etude::Tensors;
using toy::contains;
using toy::fault_of;
namespace x = toy::exported;
using Named = std::map<std::string, torch::Tensor>;

torch::Tensor numbers(std::initializer_list<double> values) {
  return torch::tensor(std::vector<double>(values)).to(torch::kFloat);
}

// logits = inputs * scale.weight; loss = mean((logits - labels)^2).
x::Model scale_model() {
  return {.inputs = {x::parameter("scale.weight"), x::batch("inputs", {"s0"}), x::batch("labels", {"s0"})},
          .nodes = {x::call("aten.mul.Tensor",
                            {{"self", x::tensor("inputs")}, {"other", x::tensor("p_scale.weight")}},
                            {x::tensor("logits")}),
                    x::call("aten.mse_loss.default",
                            {{"self", x::tensor("logits")}, {"target", x::tensor("labels")}},
                            {x::tensor("loss")})},
          .outputs = {{"loss", "loss"}, {"logits", "logits"}}};
}
etude::ExportedModule scale() { return x::module_of(scale_model(), {{"scale.weight", numbers({2})}}); }

std::string refusal(etude::ExportedModule module, const Tensors& inputs) {
  return fault_of<etude::DataError>([&] { module->forward(inputs); });
}

TEST_CASE("outputs have the names that they have in Python") {
  auto module = scale();
  const auto out = module->forward(Tensors({numbers({1, 2}), numbers({2, 2})}, {"inputs", "labels"}));
  CHECK(out.names() == std::vector<std::string>{"loss", "logits"});
  CHECK(out.at("logits").equal(numbers({2, 4})));
  CHECK(out.at("loss").item<float>() == 2);
  CHECK(module->input_names() == std::vector<std::string>{"inputs", "labels"});
  out.at("loss").backward();
  CHECK(module->named_parameters()["scale.weight"].grad().item<float>() == 4);  // mean of 2 (l - t) x
}

TEST_CASE("inputs are taken by name in any order, or by position") {
  auto module = scale();
  const auto a = numbers({1, 2}), b = numbers({2, 2});
  CHECK(module->forward(Tensors({b, a}, {"labels", "inputs"})).at("loss").item<float>() == 2);
  CHECK(module->forward(Tensors(a, b)).at("loss").item<float>() == 2);
  CHECK(contains(refusal(module, Tensors({a, b}, {"inputs", "target"})),
                 "has no input 'target': it takes inputs, labels"));
  CHECK(contains(refusal(module, Tensors(a, b, b)),
                 "takes inputs, labels, but the batch has 3 tensors without names"));
}

TEST_CASE("a batch without labels gives what it can") {
  auto module = scale();
  const auto a = numbers({1, 2});
  for (const auto& batch : {Tensors({a}, {"inputs"}), Tensors(a)}) {
    const auto out = module->forward(batch);
    CHECK(out.names() == std::vector<std::string>{"logits"});
    CHECK(out.at("logits").equal(numbers({2, 4})));
  }
  CHECK(contains(refusal(module, Tensors({a}, {"labels"})),
                 "can't compute any output: the batch has no inputs"));
}

TEST_CASE("a single unnamed tensor isn't guessed between two inputs") {
  auto model = scale_model();
  model.inputs[2] = x::batch("other", {"s0"});
  model.nodes[1] =
      x::call("aten.mse_loss.default", {{"self", x::tensor("logits")}, {"target", x::tensor("other")}},
              {x::tensor("loss")});
  auto module = x::module_of(model, {{"scale.weight", numbers({2})}});
  CHECK(contains(refusal(module, numbers({1})),
                 "takes inputs, other, but the batch has one tensor without names: name the fields"));
}

TEST_CASE("sizes and types are checked against the export, in words") {
  auto model = scale_model();
  model.inputs[1] = x::batch("inputs", {"s0", "3"});
  model.inputs[2] = x::batch("labels", {"s0", "s1"});
  model.ranges = R"({"s0": {"min_val": 4, "max_val": 8}, "s1": {"min_val": 2, "max_val": null}})";
  model.guards = R"(["L['inputs'].size()[1] == L['labels'].size()[1]"])";
  auto module = x::module_of(model, {{"scale.weight", numbers({2})}});
  const auto refused = [&](const torch::Tensor& inputs, const torch::Tensor& labels) {
    return refusal(module, Tensors({inputs, labels}, {"inputs", "labels"}));
  };
  const auto good = torch::ones({4, 3});
  CHECK(refused(good, good) == "nothing was thrown");
  CHECK(contains(refused(torch::ones({4, 5}), torch::ones({4, 5})),
                 "inputs is float32 [4, 5]: must be float32 [4 to 8, 3], as when the model was exported; to "
                 "take other sizes in dimension 1"));
  CHECK(contains(refused(torch::ones({4}), good), "inputs is float32 [4]: must be float32 [4 to 8, 3]"));
  CHECK(contains(refused(torch::ones({3, 3}), torch::ones({3, 3})),
                 "dimension 0 must be at least 4 and at most 8"));
  CHECK(contains(refused(torch::ones({9, 3}), torch::ones({9, 3})),
                 "dimension 0 must be at least 4 and at most 8"));
  CHECK(contains(refused(good, torch::ones({5, 3})),
                 "dimension 0 of labels is 5, but dimension 0 of inputs is 4: they must be equal"));
  CHECK(contains(refused(good, torch::ones({4, 2})),
                 "dimension 1 of inputs is 3, but dimension 1 of labels is 2: they must be equal"));
  // It throws even after a batch of these sizes was accepted.
  CHECK(
      contains(refused(torch::ones({4, 3}, torch::kLong), good), "inputs is int64 [4, 3]: must be float32"));
}

TEST_CASE("conditions of sizes are checked, with the inputs that they are about") {
  auto model = scale_model();
  model.inputs[1] = x::batch("inputs", {"s0", "s1"});
  model.inputs[2] = x::batch("labels_0", {"s2"});
  model.nodes.pop_back();
  model.outputs = {{"logits", "logits"}};
  // Guards as torch 2.13 writes them for reshape(-1, 8), a comparison of sizes, and a list of inputs.
  const auto refused = [&](const std::string& guards, const torch::Tensor& inputs,
                           const torch::Tensor& labels) {
    model.guards = guards;
    return refusal(x::module_of(model, {{"scale.weight", numbers({2})}}),
                   Tensors({inputs, labels}, {"inputs", "labels_0"}));
  };
  const auto batch = torch::ones({4, 6}), labels = torch::ones({5});
  const auto divisible = R"(["((4*L['inputs'].size()[1]) % 8) == 0"])";
  CHECK(refused(divisible, batch, labels) == "nothing was thrown");
  CHECK(
      refused(divisible, torch::ones({4, 7}), labels) ==
      "inputs is float32 [4, 7]: the sizes must satisfy ((4*inputs.size(1)) % 8) == 0, as when the model was "
      "exported");
  const auto compared =
      R"(["L['labels'][0].size()[0] + L['inputs'].size()[0] < 10", "L['inputs'].stride()[1] == 1"])";
  CHECK(refused(compared, batch, labels) == "nothing was thrown");
  CHECK(
      contains(refused(compared, batch, torch::ones({6})),
               "labels_0 is float32 [6], inputs is float32 [4, 6]: the sizes must satisfy labels_0.size(0) + "
               "inputs.size(0) < 10"));
  CHECK(contains(refused(compared, torch::ones({6, 4}).t(), labels), "must satisfy inputs.stride(1) == 1"));
  auto module = x::module_of(model, {{"scale.weight", numbers({2})}});
  CHECK(refusal(module, Tensors({torch::ones({4, 4})}, {"inputs"})) == "nothing was thrown");
  CHECK(contains(refusal(module, Tensors({torch::ones({4, 4}).t()}, {"inputs"})),
                 "must satisfy inputs.stride(1)"));
  // A division by zero fails the guard, as in Python. Inputs that aren't tensors are constant, so their
  // guards hold.
  CHECK(contains(
      refused(R"(["L['n'] == 3", "7 % (L['inputs'].size()[0] // 2) != 9"])", torch::ones({1, 6}), labels),
      "must satisfy 7 % (inputs.size(0) // 2) != 9"));
  // A guard isn't checked for inputs that aren't given.
  CHECK(x::module_of(model, {{"scale.weight", numbers({2})}})->forward(Tensors({batch}, {"inputs"})).size() ==
        1);
  model.guards = R"(["L['other'].size()[0] == 3"])";
  CHECK(contains(fault_of([&] { x::module_of(model, {}); }),
                 "its condition 'other.size(0) == 3' is about a size that no input has"));
}

TEST_CASE("sizes that depend on others are checked") {
  auto model = scale_model();
  model.inputs[1] = x::batch("inputs", {"s0", "s1"});
  model.inputs[2] = x::batch("labels", {"s2"});
  model.nodes.pop_back();
  model.outputs = {{"logits", "logits"}};
  model.ranges =
      R"({"2*s7": {"min_val": 6, "max_val": 200}, "s7": {"min_val": 3, "max_val": 100}, "u0": {"min_val": 3, "max_val": 4},
                     "s0 + s1": {"min_val": 2, "max_val": 12}})";
  // torch.export.Dim("d", min=3, max=100): 2 * d and d + 1.
  const auto json = [&](const std::string& size) {
    return fmt::format(R"({{"as_expr": {{"expr_str": "{}", "hint": {{"as_int": 4}}}}}})", size);
  };
  const auto replaced = [](std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
  };
  const auto plain = [&](const std::string& symbol) {
    return json("Symbol('" + symbol + "', positive=True, integer=True)");
  };
  auto text = replaced(model.json(), "[" + plain("s0"),
                       "[" + json("Mul(Integer(2), Symbol('s7', positive=True, integer=True))"));
  text = replaced(text, plain("s2"), json("Add(Symbol('s7', positive=True, integer=True), Integer(1))"));
  const auto program = etude::detail::read_program(text, "m.pt2");
  const auto refused = [&](std::int64_t inputs, std::int64_t labels) {
    return fault_of<etude::DataError>([&] {
      program.check_inputs({torch::ones({inputs, 2}), torch::ones({labels})});
    });
  };
  CHECK(refused(8, 5) == "nothing was thrown");
  CHECK(refused(7, 5) ==
        "dimension 0 of inputs is 7: must be 2 n with an integer n, as when the model was exported");
  CHECK(refused(8, 6) == "dimension 0 of labels is 6: must be 5, since dimension 0 of inputs is 8");
  CHECK(refused(4, 3) ==
        "dimension 0 of inputs is 4: must be at least 6 and at most 200, as when the model was exported");
  CHECK(fault_of<etude::DataError>([&] {
          program.check_inputs({torch::Tensor(), torch::ones({3})});
        }) ==
        "dimension 0 of labels is 3: must be at least 4 and at most 101, as when the model was exported");
}

TEST_CASE("parameters, buffers and constants go where they are in Python") {
  x::Model model{.inputs = {x::parameter("a.weight"), x::parameter("a.frozen", false), x::buffer("a.b.mean"),
                            x::buffer("a.position", false), x::constant("lifted"), x::batch("x", {"s0"})},
                 .nodes = {},
                 .outputs = {{"y", "s4"}}};
  const std::vector<std::string> values{"p_a.weight", "p_a.frozen", "b_a.b.mean", "b_a.position", "c_lifted"};
  for (std::size_t i = 0; i < values.size(); ++i)
    model.nodes.push_back(
        x::call("aten.add.Tensor",
                {{"self", x::tensor(i ? fmt::format("s{}", i - 1) : "x")}, {"other", x::tensor(values[i])}},
                {x::tensor(fmt::format("s{}", i))}));
  const Named tensors{{"a.weight", numbers({1})},
                      {"a.frozen", numbers({10})},
                      {"a.b.mean", numbers({100})},
                      {"a.position", numbers({1000})}};
  auto module = x::module_of(model, tensors, {{"lifted", numbers({10000})}});
  CHECK(module->forward(numbers({0})).single().item<float>() == 11111);
  std::vector<std::string> parameters, buffers;
  for (const auto& item : module->named_parameters()) parameters.push_back(item.key());
  for (const auto& item : module->named_buffers()) buffers.push_back(item.key());
  CHECK(parameters == std::vector<std::string>{"a.weight", "a.frozen"});
  CHECK(buffers == std::vector<std::string>{"a.b.mean"});
  CHECK(module->named_parameters()["a.weight"].requires_grad());
  CHECK_FALSE(module->named_parameters()["a.frozen"].requires_grad());

  SUBCASE("a missing one is named") {
    auto fewer = tensors;
    fewer.erase("a.b.mean");
    CHECK(fault_of([&] {
            x::module_of(model, fewer, {{"lifted", numbers({1})}});
          }) == "m.pt2: it has no tensor 'a.b.mean'");
    CHECK(fault_of([&] { x::module_of(model, tensors); }) == "m.pt2: it has no tensor 'lifted'");
  }
  SUBCASE("another dtype is taken by floating-point tensors") {
    module->to(torch::kDouble);
    CHECK((module->forward(numbers({0})).single().scalar_type() == torch::kDouble));
    CHECK(module->forward(numbers({0})).single().item<double>() == 11111);
  }
  SUBCASE("with a device too") {
    module->to(torch::kCPU, torch::kDouble);
    CHECK(module->forward(numbers({0})).single().item<double>() == 11111);
    module->to(torch::kCPU);
    CHECK((module->named_parameters()["a.weight"].scalar_type() == torch::kDouble));
  }
}

TEST_CASE("integers stay integers when a model takes another dtype") {
  auto module = x::module_of(
      {.inputs = {x::buffer("position"), x::batch("x", {"s0"})},
       .nodes = {x::call(
           "aten.index_select.default",
           {{"self", x::tensor("x")}, {"dim", x::integer(0)}, {"index", x::tensor("b_position")}},
           {x::tensor("y")})},
       .outputs = {{"y", "y"}}},
      {{"position", torch::tensor({1, 0, 301}, torch::kLong)}});
  module->to(torch::kBFloat16);
  CHECK((module->named_buffers()["position"].scalar_type() == torch::kLong));
  CHECK(module->named_buffers()["position"][2].item<std::int64_t>() == 301);
}

TEST_CASE("inputs keep the names that they have in Python, where the graph has small letters") {
  const std::string leaf = R"({"type": null, "context": null, "children_spec": []})";
  const auto of = [](const std::string& type, const std::string& context, const std::string& children) {
    return R"({"type": "builtins.)" + type + R"(", "context": )" + context + R"(, "children_spec": [)" +
           children + "]}";
  };
  const auto pair = of("list", "null", leaf + ", " + leaf);
  x::Model model{
      .inputs = {x::batch("x", {"s0"}), x::batch("pair_0", {"s0"}), x::batch("pair_1", {"s0"}),
                 x::batch("opts_big", {"s0"}), x::batch("mylabels", {"s0"})},
      .nodes = {x::call("aten.sub.Tensor", {{"self", x::tensor("x")}, {"other", x::tensor("pair_1")}},
                        {x::tensor("a")}),
                x::call("aten.mul.Tensor", {{"self", x::tensor("a")}, {"other", x::tensor("opts_big")}},
                        {x::tensor("y")})},
      .outputs = {{"y", "y"}},
      .in_spec = "[1, " +
                 of("tuple", "null",
                    of("tuple", "null", "") + ", " +
                        of("dict", R"-("[\"X\", \"pair\", \"Opts\", \"MyLabels\"]")-",
                           leaf + ", " + pair + ", " + of("dict", R"-("[\"Big\"]")-", leaf) + ", " + leaf)) +
                 "]"};
  auto module = x::module_of(model, {});
  CHECK(module->input_names() == std::vector<std::string>{"X", "pair_0", "pair_1", "Opts_Big", "MyLabels"});
  const auto y = module->forward(Tensors({numbers({7}), numbers({0}), numbers({4}), numbers({5})},
                                         {"X", "pair_0", "pair_1", "Opts_Big"}));
  CHECK(y.at("y").item<float>() == 15);
  model.in_spec = "";
  CHECK(x::module_of(model, {})->input_names().front() == "x");
}

TEST_CASE("tied names are one parameter") {
  auto model = scale_model();
  model.inputs.insert(model.inputs.begin(), x::parameter("tied"));
  model.nodes[0] =
      x::call("aten.mul.Tensor", {{"self", x::tensor("p_tied")}, {"other", x::tensor("p_scale.weight")}},
              {x::tensor("square")});
  model.nodes.insert(
      model.nodes.begin() + 1,
      x::call("aten.mul.Tensor", {{"self", x::tensor("inputs")}, {"other", x::tensor("square")}},
              {x::tensor("logits")}));
  const auto weight = numbers({3});
  auto module = x::module_of(model, {{"scale.weight", weight}, {"tied", weight}});
  const auto parameters = module->named_parameters();
  CHECK(parameters["tied"].is_same(parameters["scale.weight"]));
  module->forward(Tensors({numbers({1})}, {"inputs"})).single().sum().backward();
  CHECK(parameters["tied"].grad().item<float>() == 6);  // the derivative of w^2 is 2 w
}

TEST_CASE("names that no module can have are refused") {
  std::string deep = "a";
  for (int i = 0; i < 1000; ++i) deep += ".a";
  for (const std::string& name :
       {std::string(), std::string(".a"), std::string("a."), std::string("a..b"), deep}) {
    auto model = scale_model();
    model.inputs[0].name = name;
    CHECK(contains(fault_of([&] {
                     x::module_of(model, {{name, numbers({1})}});
                   }),
                   "isn't a valid name of a parameter or buffer"));
  }
}

TEST_CASE("new values of buffers that a functional graph gives are stored") {
  x::Model model{
      .inputs = {x::buffer("count"), x::batch("x", {"s0"})},
      .nodes = {x::call("aten.add.Tensor", {{"self", x::tensor("b_count")}, {"other", x::integer(1)}},
                        {x::tensor("next")}),
                x::call("aten.mul.Tensor", {{"self", x::tensor("x")}, {"other", x::tensor("b_count")}},
                        {x::tensor("y")})},
      .outputs = {{"y", "y"}},
      .mutations = {{"count", "next"}}};
  auto module = x::module_of(model, {{"count", numbers({5})}});
  CHECK(module->forward(numbers({1})).single().item<float>() == 5);
  CHECK(module->forward(numbers({1})).single().item<float>() == 6);
  CHECK(module->named_buffers()["count"].item<float>() == 7);

  model.mutations[0].second = "y";
  auto wrong = x::module_of(model, {{"count", numbers({5})}});
  try {
    wrong->forward(numbers({1, 2}));
    FAIL("nothing was thrown");
  } catch (const c10::Error& error) {
    CHECK(std::string(error.what_without_backtrace()).starts_with("buffer count: "));
  }
}

// A model of one operator that depends on the mode: y = op(x).
x::Model with(const std::string& target, x::Named arguments, std::vector<x::Input> state = {},
              x::Texts sizes = {"s0"}) {
  arguments.insert(arguments.begin(), {"input", x::tensor("x")});
  state.push_back(x::batch("x", std::move(sizes)));
  return {.inputs = std::move(state),
          .nodes = {x::call(target, arguments, {x::tensor("y")})},
          .outputs = {{"y", "y"}}};
}

TEST_CASE("dropout drops in training mode only, whichever mode was exported") {
  for (const bool exported : {true, false}) {
    CAPTURE(exported);
    auto module =
        x::module_of(with("aten.dropout.default", {{"p", x::real(0.5)}, {"train", x::flag(exported)}}), {});
    const auto ones = torch::ones({1000});
    module->train();
    const auto dropped = module->forward(ones).single();
    const auto zeros = (dropped == 0).sum().item<std::int64_t>();
    CHECK(zeros > 400);
    CHECK(zeros < 600);
    CHECK(dropped.max().item<float>() == 2);
    module->eval();
    CHECK(module->forward(ones).single().equal(ones));
  }
}

/// A batch norm as its module calls it or, if `is_native`, as an export for inference decomposes it.
x::Model batch_norm(bool training, bool is_native = false) {
  x::Named arguments{{"weight", x::none},
                     {"bias", x::none},
                     {"running_mean", x::tensor("b_mean")},
                     {"running_var", x::tensor("b_var")},
                     {"training", x::flag(training)},
                     {"momentum", x::real(0.5)},
                     {"eps", x::real(0)}};
  if (!is_native) arguments.emplace_back("cudnn_enabled", x::flag(false));
  auto model = with("aten.batch_norm.default", arguments, {x::buffer("mean"), x::buffer("var")}, {"s0", "1"});
  if (is_native) {
    arguments.emplace_back("input", x::tensor("x"));
    model.nodes = {x::call("aten.native_batch_norm.default", arguments,
                           {x::tensor("y"), x::tensor("mean"), x::tensor("deviation")})};
  }
  return model;
}

TEST_CASE("batch norm takes the batch's statistics in training mode, and the running ones in evaluation") {
  for (const bool exported : {true, false})
    for (const bool is_native : {true, false}) {
      CAPTURE(exported);
      CAPTURE(is_native);
      auto module =
          x::module_of(batch_norm(exported, is_native), {{"mean", numbers({0})}, {"var", numbers({4})}});
      const auto batch = numbers({1, 3}).reshape({2, 1});
      module->eval();
      CHECK(module->forward(batch).single().flatten().equal(numbers({0.5, 1.5})));
      CHECK(module->named_buffers()["mean"].item<float>() == 0);
      module->train();
      CHECK(module->forward(batch).single().flatten().equal(numbers({-1, 1})));
      CHECK(module->named_buffers()["mean"].item<float>() == 1);  // (0 + 2) / 2
      CHECK(module->named_buffers()["var"].item<float>() == 3);   // (4 + 2) / 2, where 2 is unbiased
    }
}

TEST_CASE("instance norm without running statistics takes the example's in both modes") {
  auto module = x::module_of(with("aten.instance_norm.default",
                                  {{"weight", x::none},
                                   {"bias", x::none},
                                   {"running_mean", x::none},
                                   {"running_var", x::none},
                                   {"use_input_stats", x::flag(true)},
                                   {"momentum", x::real(0.5)},
                                   {"eps", x::real(0)},
                                   {"cudnn_enabled", x::flag(false)}},
                                  {}, {"s0", "1", "2"}),
                             {});
  const auto batch = numbers({1, 3}).reshape({1, 1, 2});
  for (const bool training : {true, false}) {
    module->train(training);
    CHECK(module->forward(batch).single().flatten().equal(numbers({-1, 1})));
  }
}

#if TORCH_VERSION_MAJOR >= 2
x::Model attention(double dropout) {
  return {.inputs = {x::batch("x", {"s0", "1", "4", "8"})},
          .nodes = {x::call("aten.scaled_dot_product_attention.default",
                            {{"query", x::tensor("x")},
                             {"key", x::tensor("x")},
                             {"value", x::tensor("x")},
                             {"dropout_p", x::real(dropout)}},
                            {x::tensor("y")})},
          .outputs = {{"y", "y"}}};
}

TEST_CASE("attention's dropout is off in evaluation mode") {
  auto module = x::module_of(attention(0.5), {}), without = x::module_of(attention(0), {});
  const auto batch = torch::rand({2, 1, 4, 8});
  module->eval();
  CHECK(module->forward(batch).single().allclose(without->forward(batch).single()));
  module->train();
  CHECK_FALSE(module->forward(batch).single().allclose(without->forward(batch).single()));
}

TEST_CASE("attention that was exported in evaluation mode can't train, since it doesn't know its dropout") {
  auto evaluating = attention(0);
  evaluating.nodes.push_back(
      x::call("aten.dropout.default",
              {{"input", x::tensor("y")}, {"p", x::real(0.5)}, {"train", x::flag(false)}}, {x::tensor("z")}));
  evaluating.outputs = {{"z", "z"}};
  auto module = x::module_of(evaluating, {});
  CHECK(contains(fault_of<etude::Error>([&] {
                   module->forward(torch::rand({1, 1, 4, 8}));
                 }),
                 "its aten::scaled_dot_product_attention can't be switched to training mode"));
  module->eval();
  CHECK(module->forward(torch::rand({1, 1, 4, 8})).size() == 1);
}
#endif

TEST_CASE("an operator that can't follow the mode is named, with the remedy") {
  auto model = with("aten.relu.default", {});
  model.nodes[0] = x::call("aten.rand_like.default", {{"self", x::tensor("x")}}, {x::tensor("y")});
  auto module = x::module_of(model, {});
  CHECK(module->forward(numbers({1})).size() == 1);
  module->eval();
  const auto fault = fault_of<etude::Error>([&] { module->forward(numbers({1})); });
  CHECK(contains(fault,
                 "its aten::rand_like can't be switched to evaluation mode: export both modes into one file, "
                 "as tools/export.py does"));
}

TEST_CASE("a graph that changes a buffer by itself can't evaluate, but a counter of batches may") {
  const auto module_that_changes = [](const std::string& buffer) {
    x::Model model{.inputs = {x::buffer(buffer), x::batch("x", {"1"})}, .nodes = {}, .outputs = {{"y", "y"}}};
    model.nodes = {x::call("aten.add_.Tensor", {{"self", x::tensor("b_" + buffer)}, {"other", x::real(1)}},
                           {x::tensor("changed")}),
                   x::call("aten.relu.default", {{"self", x::tensor("x")}}, {x::tensor("y")})};
    return x::module_of(model, {{buffer, numbers({0})}});
  };
  auto module = module_that_changes("average");
  CHECK(module->forward(numbers({1})).size() == 1);
  module->eval();
  CHECK(contains(fault_of<etude::Error>([&] { module->forward(numbers({1})); }),
                 "its aten::add_ can't be switched to evaluation mode"));
  auto counter = module_that_changes("num_batches_tracked");
  counter->eval();
  counter->forward(numbers({1}));
  CHECK(counter->buffers()[0].item<float>() == 0);
}

TEST_CASE("a file with two graphs runs the one of the mode, over the same weights") {
  auto training = scale_model(), evaluation = scale_model();
  evaluation.nodes[0] =
      x::call("aten.add.Tensor", {{"self", x::tensor("inputs")}, {"other", x::tensor("p_scale.weight")}},
              {x::tensor("logits")});
  auto module = x::module_of(training, {{"scale.weight", numbers({2})}}, {}, &evaluation);
  CHECK(module->parameters().size() == 1);
  CHECK(module->forward(numbers({5})).at("logits").item<float>() == 10);
  module->eval();
  CHECK(module->forward(numbers({5})).at("logits").item<float>() == 7);
  torch::NoGradGuard no_grad;
  module->named_parameters()["scale.weight"].fill_(3);
  CHECK(module->forward(numbers({5})).at("logits").item<float>() == 8);
  module->train();
  CHECK(module->forward(numbers({5})).at("logits").item<float>() == 15);
}

TEST_CASE("a graph's own constant takes another dtype with the model") {
  auto relu = with("aten.relu.default", {});
  relu.nodes[0] = x::call("aten.relu.default", {{"self", x::tensor("x")}}, {x::tensor("y")});
  const x::Model evaluation{
      .inputs = {x::constant("c"), x::batch("x", {"s0"})},
      .nodes = {x::call("aten.add.Tensor", {{"self", x::tensor("x")}, {"other", x::tensor("c_c")}},
                        {x::tensor("y")})},
      .outputs = {{"y", "y"}}};
  auto module = x::module_of(relu, {}, {{"c", numbers({1})}}, &evaluation);
  module->to(torch::kDouble);
  module->eval();
  CHECK((module->forward(numbers({1})).single().scalar_type() == torch::kDouble));
}

TEST_CASE("the holder is called with tensors by place, or by name") {
  auto module = scale();
  const auto a = numbers({1, 2}), b = numbers({2, 2});
  CHECK(module(a, b).at("loss").item<float>() == 2);
  CHECK(module({{"labels", b}, {"inputs", a}}).at("loss").item<float>() == 2);
  const torch::Tensor logits = module(a);
  CHECK(logits.equal(numbers({2, 4})));
  CHECK(module->forward({a, b})[1].equal(logits));
}

// y = x w^2, where w is one parameter.
etude::ExportedModule square() {
  auto model = scale_model();
  model.inputs.pop_back();
  model.nodes = {x::call("aten.mul.Tensor",
                         {{"self", x::tensor("p_scale.weight")}, {"other", x::tensor("p_scale.weight")}},
                         {x::tensor("square")}),
                 x::call("aten.mul.Tensor", {{"self", x::tensor("inputs")}, {"other", x::tensor("square")}},
                         {x::tensor("y")})};
  model.outputs = {{"y", "y"}};
  return x::module_of(model, {{"scale.weight", numbers({3})}});
}

TEST_CASE("autograd goes through a model twice, and hooks of its parameters are called") {
  auto module = square();
  const auto w = module->parameters()[0];
  const auto in = numbers({5}).requires_grad_();
  const torch::Tensor y = module(in);
  const auto first = torch::autograd::grad({y}, {w, in}, {}, {}, /*create_graph=*/true);
  CHECK(first[0].item<float>() == 30);  // 2 x w
  CHECK(first[1].item<float>() == 9);   // w^2
  const auto second = torch::autograd::grad({first[0]}, {w, in});
  CHECK(second[0].item<float>() == 10);  // 2 x
  CHECK(second[1].item<float>() == 6);   // 2 w
  w.register_hook([](const torch::Tensor& gradient) { return gradient / 2; });
  module(in.detach()).single().backward();
  CHECK(w.grad().item<float>() == 15);
  w.requires_grad_(false);
  CHECK_FALSE(module(in.detach()).single().requires_grad());
}

TEST_CASE("a clone has weights of its own, and the modes, ties and frozen parts") {
  auto training = scale_model(), evaluation = scale_model();
  training.inputs.insert(training.inputs.begin(),
                         {x::parameter("tied"), x::buffer("b.mean"), x::constant("c")});
  evaluation.nodes[0] =
      x::call("aten.add.Tensor", {{"self", x::tensor("inputs")}, {"other", x::tensor("p_scale.weight")}},
              {x::tensor("logits")});
  const auto weight = numbers({2});
  auto module = x::module_of(training, {{"scale.weight", weight}, {"tied", weight}, {"b.mean", numbers({1})}},
                             {{"c", numbers({1})}}, &evaluation);
  module->to(torch::kDouble);
  module->named_parameters()["tied"].requires_grad_(false);
  module->named_modules()["b"]->eval();
  const auto copy = std::dynamic_pointer_cast<etude::ExportedModuleImpl>(module->clone());
  REQUIRE(copy);
  CHECK(copy->name() == module->name());
  CHECK(copy->is_training());
  CHECK_FALSE(copy->named_modules()["b"]->is_training());
  const auto parameters = copy->named_parameters();
  CHECK(parameters.keys() == module->named_parameters().keys());
  CHECK(copy->named_buffers().keys() == module->named_buffers().keys());
  CHECK(parameters["tied"].is_same(parameters["scale.weight"]));
  CHECK_FALSE(parameters["tied"].requires_grad());
  CHECK((parameters["tied"].scalar_type() == torch::kDouble));
  const torch::NoGradGuard no_grad;
  parameters["tied"].fill_(7);
  CHECK(copy->forward(numbers({5})).at("logits").item<float>() == 35);
  CHECK(module->forward(numbers({5})).at("logits").item<float>() == 10);
  copy->eval();
  CHECK(copy->forward(numbers({5})).at("logits").item<float>() == 12);
  CHECK(module->clone(torch::Device(torch::kCPU))->parameters()[0].is_cpu());
}

TEST_CASE("several threads run one model, with batches of their own sizes") {
  auto module = scale();
  module->eval();
  std::vector<int> right(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const torch::NoGradGuard no_grad;  // affects only this thread
      for (int i = 0; i < 100; ++i) {
        const auto in = torch::full({1 + (i + t) % 3}, static_cast<float>(t));
        const auto out = i % 2 ? module(in).single() : module(in, in).at("logits");
        right[static_cast<std::size_t>(t)] += out.equal(2 * in);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(right == std::vector<int>(4, 100));
}

TEST_CASE("weight decay spares what a graph normalizes with, whatever its name and class") {
  auto model = batch_norm(true);
  model.inputs.insert(model.inputs.begin(),
                      {x::parameter("act.0.weight"), x::parameter("act.0.shift"), x::parameter("scale")});
  model.inputs.back().sizes = {"s0", "1"};
  auto& node = model.nodes[0];
  for (const auto& [argument, name] :
       {std::pair("weight", "p_act.0.weight"), std::pair("bias", "p_act.0.shift")}) {
    const auto none = fmt::format(R"({{"name": "{}", "arg": {})", argument, x::none);
    const auto at = node.find(none);
    REQUIRE(at != node.npos);
    node.replace(at, none.size(), fmt::format(R"({{"name": "{}", "arg": {})", argument, x::tensor(name)));
  }
  model.nodes.push_back(x::call(
      "aten.mul.Tensor", {{"self", x::tensor("y")}, {"other", x::tensor("p_scale")}}, {x::tensor("z")}));
  model.outputs = {{"z", "z"}};
  auto module = x::module_of(model, {{"act.0.weight", numbers({1})},
                                     {"act.0.shift", numbers({0})},
                                     {"scale", numbers({1})},
                                     {"mean", numbers({0})},
                                     {"var", numbers({1})}});
  const auto groups = etude::parameter_groups(*module, 0.1);
  REQUIRE(groups[0].parameters.size() == 1);
  CHECK(groups[0].parameters[0].first == "scale");
  CHECK(groups[1].parameters.size() == 2);
}

struct AroundImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& in) { return inner->forward(in).at("logits") + 1; }
  etude::ExportedModule inner{register_module("inner", scale())};
};
TORCH_MODULE(Around);

TEST_CASE("an exported model is a part of another") {
  Around around;
  CHECK(around->forward(numbers({1})).item<float>() == 3);
  CHECK(around->named_parameters().contains("inner.scale.weight"));
  around->to(torch::kDouble);
  CHECK((around->forward(torch::ones({1}, torch::kDouble)).scalar_type() == torch::kDouble));
  around->eval();
  CHECK_FALSE(around->inner->is_training());
}

TEST_CASE("an exported model is trained, and its files lie beside its weights") {
  const toy::Folder folder;
  auto model = scale_model();
  etude::ExportedModuleImpl::Content content{.name = "m.pt2",
                                             .training = etude::detail::read_program(model.json(), "m.pt2"),
                                             .evaluation = nullptr,
                                             .tensors = {{"scale.weight", numbers({0})}},
                                             .files = {{"config.json", "{\"a\": 1}"}}};
  auto args = toy::arguments();
  toy::save_to(folder, args, 4);
  args.max_steps = 4;
  const auto points = toy::points(4);
  etude::Trainer<> trainer(
      {.model = etude::ExportedModule(std::make_shared<etude::ExportedModuleImpl>(std::move(content))),
       .args = args,
       .train_dataset = etude::Dataset(
           etude::Tensors({points.first.flatten(), 3 * points.first.flatten()}, {"inputs", "labels"}))});
  {
    const toy::Silence silence;
    trainer.train();
  }
  trainer.save_model(folder / "final");
  CHECK(toy::read_text(folder / "final/config.json") == "{\"a\": 1}");
  CHECK(toy::read_text(folder / "checkpoint-4/config.json") == "{\"a\": 1}");
  const auto saved = etude::load_safetensors(folder / "final/model.safetensors");
  REQUIRE(saved.tensors.size() == 1);
  CHECK(saved.tensors[0].first == "scale.weight");
  const auto weight = saved.tensors[0].second.item<float>();
  CHECK(weight > 0);
  CHECK(weight < 3);
}

std::string program_fault(const std::string& json) {
  const auto fault = fault_of([&] { etude::detail::read_program(json, "m.pt2: models/m.json"); });
  if (fault != "nothing was thrown") CHECK(fault.starts_with("m.pt2: models/m.json: "));
  return fault;
}
std::string with_text(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("versions that can't be read are refused by number") {
  const auto version = [](int major, int minor) {
    auto model = scale_model();
    model.version = fmt::format(R"({{"major": {}, "minor": {}}})", major, minor);
    return program_fault(model.json());
  };
  CHECK(version(8, 8) == "nothing was thrown");
  CHECK(version(8, 20) == "nothing was thrown");
  CHECK(contains(version(8, 7), "schema_version is 8.7: must be 8.8 (torch 2.8) or a later 8"));
  CHECK(contains(version(7, 9), "schema_version is 7.9: must be"));
  CHECK(contains(version(9, 0), "schema_version is 9.0: must be"));
}

TEST_CASE("the structure of the outputs is bounded") {
  auto model = scale_model();
  model.outputs[0].first = std::string(1001, 'a');
  CHECK(contains(program_fault(model.json()), "an output's name has more than 1000 bytes"));
  std::string spec = "{\\\"type\\\": null}";
  for (int i = 0; i < 34; ++i)
    spec = "{\\\"type\\\": \\\"list\\\", \\\"context\\\": null, \\\"children_spec\\\": [" + spec + "]}";
  const auto json = scale_model().json();
  const std::string begin = R"("out_spec": ")";
  const auto from = json.find(begin) + begin.size();
  auto deep = json;
  deep.replace(from, json.find("\"}", from) - from, "[1, " + spec + "]");
  CHECK(contains(program_fault(deep), "its structure lies more than 32 deep"));
}

TEST_CASE("what stands around a graph must fit it") {
  const auto json = scale_model().json();
  CHECK(program_fault(json) == "nothing was thrown");
  CHECK(contains(program_fault(with_text(json, R"("input_specs": [)", R"("input_specs": [{"token": {}}, )")),
                 "input_specs and the inputs of the graph differ in number"));
  CHECK(
      contains(program_fault(with_text(json, R"("output_specs": [)", R"("output_specs": [{"token": {}}, )")),
               "output_specs and the outputs of the graph differ in number"));
  CHECK(contains(
      program_fault(with_text(json, R"("output_specs": [{"user_output")", R"("output_specs": [{"token")")),
      "an output is a token, which isn't supported"));
  CHECK(contains(program_fault(with_text(json, R"([{"parameter": )", R"([{"custom_obj": )")),
                 "an input is a custom_obj"));
  // The kind of an input must be the one in the graph.
  CHECK(contains(program_fault(with_text(json, R"("inputs": [{"as_tensor": {"name": "p_scale.weight"}})",
                                         R"("inputs": [{"as_sym_int": {"as_name": "p_scale.weight"}})")),
                 "'p_scale.weight' isn't the tensor in its place of the graph's inputs"));
  CHECK(
      contains(program_fault(with_text(json, R"({"user_input": {"arg": {"as_tensor": {"name": "inputs"}}}})",
                                       R"({"user_input": {"arg": {"as_tensor": {"name": "labels"}}}})")),
               "'labels' isn't the tensor in its place of the graph's inputs"));
  CHECK(contains(
      program_fault(with_text(json, R"("tensor_values": {)", R"("tensor_values": {"z": 1}, "w": {)")),
      "tensor_values has no"));
  CHECK(contains(program_fault(with_text(json, "[1, {", "[2, {")), "out_spec isn't of version 1"));
  CHECK(contains(program_fault("[]"), "it isn't an object with"));
  CHECK(contains(program_fault("{\xff}"), "it isn't JSON"));
  CHECK(
      contains(program_fault(with_text(json, R"({"user_input": {"arg": {"as_tensor": {"name": "labels"}}}})",
                                       R"({"user_input": {"arg": {"as_sym_int": {"as_name": "labels"}}}})")),
               "its input 'labels' is a number that varies"));
}

}  // namespace model_exported_module_test
