#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/formats/exported_json.hpp"
#include "etude/model/exported_module.hpp"

/// Builds, piece by piece, the JSON that torch.export writes for models (see torch/_export/serde/schema.py).
namespace toy::exported {

using Named = std::vector<std::pair<std::string, std::string>>;
using Texts = std::vector<std::string>;

inline std::string list(const Texts& texts) { return fmt::format("[{}]", fmt::join(texts, ", ")); }
inline std::string tensor(const std::string& name) { return R"({"as_tensor": {"name": ")" + name + R"("}})"; }
inline std::string tensors(const Texts& names) {
  Texts texts;
  for (const auto& name : names) texts.push_back(R"({"name": ")" + name + R"("})");
  return R"({"as_tensors": )" + list(texts) + "}";
}
inline std::string integer(std::int64_t value) { return fmt::format(R"({{"as_int": {}}})", value); }
inline std::string integers(const std::vector<std::int64_t>& values) {
  return fmt::format(R"({{"as_ints": [{}]}})", fmt::join(values, ", "));
}
inline std::string real(double value) { return fmt::format(R"({{"as_float": {}}})", value); }
inline std::string flag(bool value) { return fmt::format(R"({{"as_bool": {}}})", value); }
inline std::string size(const std::string& name) {
  return R"({"as_sym_int": {"as_name": ")" + name + R"("}})";
}
inline std::string any_real(const std::string& name) {
  return R"({"as_sym_float": {"as_name": ")" + name + R"("}})";
}
inline std::string any_flag(const std::string& name) {
  return R"({"as_sym_bool": {"as_name": ")" + name + R"("}})";
}
inline std::string dtype(int number) { return fmt::format(R"({{"as_scalar_type": {}}})", number); }
inline const std::string none = R"({"as_none": true})";

/// A node: `target` without "torch.ops.", its arguments by name, and its outputs.
inline std::string call(const std::string& target, const Named& arguments, const Texts& outputs) {
  Texts inputs;
  for (const auto& [name, argument] : arguments)
    inputs.push_back(fmt::format(R"({{"name": "{}", "arg": {}, "kind": 1}})", name, argument));
  const auto full =
      target.starts_with("_operator.") || target.starts_with("torch.") || target.starts_with("math.")
          ? target
          : "torch.ops." + target;
  return fmt::format(R"({{"target": "{}", "inputs": {}, "outputs": {}, "metadata": {{}}}})", full,
                     list(inputs), list(outputs));
}

/// A graph alone, without the surrounding JSON.
inline std::string graph(const Texts& inputs, const Texts& nodes, const Texts& outputs) {
  return fmt::format(R"({{"inputs": {}, "nodes": {}, "outputs": {}}})", list(inputs), list(nodes),
                     list(outputs));
}
inline std::string as_graph(const std::string& text) {
  return R"({"as_graph": {"name": "g", "graph": )" + text + "}}";
}

inline constexpr int float32 = 7, int64 = 5;  // numbers of dtypes in the files

/// A tensor input of a graph. `sizes` are numbers, or symbols where they vary.
struct Input {
  std::string kind, value, name = {};
  Texts sizes = {};
  int dtype = float32;
  bool requires_grad = true, persistent = true;
};

inline Input parameter(const std::string& name, bool requires_grad = true) {
  return {.kind = "parameter", .value = "p_" + name, .name = name, .requires_grad = requires_grad};
}
inline Input buffer(const std::string& name, bool persistent = true) {
  return {
      .kind = "buffer", .value = "b_" + name, .name = name, .requires_grad = false, .persistent = persistent};
}
inline Input constant(const std::string& name) {
  return {.kind = "tensor_constant", .value = "c_" + name, .name = name, .requires_grad = false};
}
inline Input batch(const std::string& name, Texts sizes, int dtype = float32) {
  return {.kind = "user_input",
          .value = name,
          .name = name,
          .sizes = std::move(sizes),
          .dtype = dtype,
          .requires_grad = false};
}

/// The JSON of a program.
struct Model {
  std::vector<Input> inputs;
  Texts nodes;
  Named outputs;             ///< by their names in Python, each the name of a tensor
  Named mutations = {};      ///< new values of buffers: the buffer, the name of a tensor
  std::string in_spec = "";  ///< JSON of the structure of the inputs in Python
  std::string ranges = "{}", guards = "[]", version = R"({"major": 8, "minor": 8})";

  std::string json() const {
    Texts graph_inputs, input_specs, values, graph_outputs, output_specs, keys, leaves;
    for (const auto& each : inputs) {
      graph_inputs.push_back(tensor(each.value));
      Texts sizes;
      for (const auto& one : each.sizes)
        sizes.push_back(one.find_first_not_of("0123456789") == one.npos
                            ? R"({"as_int": )" + one + "}"
                            : R"-({"as_expr": {"expr_str": "Symbol(')-" + one +
                                  R"-(', positive=True, integer=True)", "hint": {"as_int": 4}}})-");
      values.push_back(fmt::format(
          R"("{}": {{"dtype": {}, "sizes": {}, "requires_grad": {}, "device": {{"type": "cpu", "index": null}}, "strides": [], "storage_offset": {{"as_int": 0}}, "layout": 7}})",
          each.value, each.dtype, list(sizes), each.requires_grad));
      if (each.kind == "user_input")
        input_specs.push_back(R"({"user_input": {"arg": )" + tensor(each.value) + "}}");
      else
        input_specs.push_back(
            fmt::format(R"({{"{0}": {{"arg": {{"name": "{1}"}}, "{0}_name": "{2}", "persistent": {3}}}}})",
                        each.kind, each.value, each.name, each.persistent));
    }
    for (const auto& [target, value] : mutations) {
      graph_outputs.push_back(tensor(value));
      output_specs.push_back(fmt::format(
          R"({{"buffer_mutation": {{"arg": {{"name": "{}"}}, "buffer_name": "{}"}}}})", value, target));
    }
    for (const auto& [name, value] : outputs) {
      graph_outputs.push_back(tensor(value));
      output_specs.push_back(R"({"user_output": {"arg": )" + tensor(value) + "}}");
      keys.push_back("\"" + name + "\"");
      leaves.push_back(R"({"type": null, "context": null, "children_spec": []})");
    }
    const auto context = etude::detail::ExportedJson(list(keys)).dump();
    const auto spec = etude::detail::ExportedJson(fmt::format(
        R"([1, {{"type": "builtins.dict", "context": {}, "children_spec": {}}}])", context, list(leaves)));
    return fmt::format(
        R"({{"graph_module": {{"graph": {{"inputs": {}, "nodes": {}, "outputs": {}, "tensor_values": {{{}}}}},
        "signature": {{"input_specs": {}, "output_specs": {}}},
        "module_call_graph": [{{"fqn": "", "signature": {{"in_spec": {}, "out_spec": {}}}}}]}},
        "opset_version": {{"aten": 10}}, "range_constraints": {}, "guards_code": {}, "schema_version": {}}})",
        list(graph_inputs), list(nodes), list(graph_outputs), fmt::join(values, ", "), list(input_specs),
        list(output_specs), etude::detail::ExportedJson(in_spec).dump(), spec.dump(), ranges, guards,
        version);
  }
};

/// The module read from a file with this model's graph, and with a graph for evaluation if `evaluation` isn't
/// null.
inline etude::ExportedModule module_of(const Model& model, std::map<std::string, torch::Tensor> tensors,
                                       std::map<std::string, torch::Tensor> constants = {},
                                       const Model* evaluation = nullptr) {
  const auto read = [&](const Model& each) {
    auto program = etude::detail::read_program(each.json(), "m.pt2: models/model.json");
    program.constants = constants;
    return program;
  };
  etude::ExportedModuleImpl::Content content{.name = "m.pt2",
                                             .training = read(model),
                                             .evaluation = nullptr,
                                             .tensors = std::move(tensors),
                                             .files = {}};
  if (evaluation)
    content.evaluation = std::make_shared<etude::detail::ExportedProgram>(read(*evaluation));
  else
    etude::detail::follow_mode(content.training);
  return etude::ExportedModule(std::make_shared<etude::ExportedModuleImpl>(std::move(content)));
}

}  // namespace toy::exported
