#include "etude/integrations/tensorboard/graph.hpp"

#include <c10/util/Type.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <protozero/pbf_writer.hpp>
#include <sstream>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

namespace etude::inline v0::detail::tensorboard {

namespace {

/// A node of a graph.
struct GraphNode {
  std::string name;  ///< its scopes, outermost first, and its name, separated by slashes
  std::string op;
  std::vector<std::string> inputs = {};  ///< the names of other nodes
  std::string attributes = {};           ///< shown as text
  std::optional<std::vector<std::int64_t>> shape = {};
};

/// Writes a GraphDef, in the form of PyTorch's SummaryWriter.
class GraphWriter {
 public:
  /// Returns `name`, with a number appended if it is taken.
  std::string unique(const std::string& name) {
    const auto count = used_[name]++;
    return count == 0 ? name : unique(name + '_' + std::to_string(count));
  }

  void add(const GraphNode& node) {
    protozero::pbf_writer def(graph_, 1);
    def.add_string(1, node.name);
    def.add_string(2, node.op);
    for (const auto& input : node.inputs) def.add_string(3, input);
    if (!node.attributes.empty()) {
      protozero::pbf_writer entry(def, 5);
      entry.add_string(1, "attr");
      protozero::pbf_writer value(entry, 2);
      value.add_bytes(2, node.attributes);
    }
    if (node.shape) {
      protozero::pbf_writer entry(def, 5);
      entry.add_string(1, "_output_shapes");
      protozero::pbf_writer value(entry, 2), list(value, 1), shape(list, 7);
      for (const auto size : *node.shape) {
        protozero::pbf_writer dim(shape, 2);
        dim.add_int64(1, size);
      }
    }
  }

  std::string finish() {
    {
      protozero::pbf_writer versions(graph_, 4);
      versions.add_int32(1, 22);
    }
    return text_;
  }

 private:
  std::string text_;
  protozero::pbf_writer graph_{text_};
  std::unordered_map<std::string, int> used_;
};

/// The class name alone: "Net" for "etude::Net<int>Impl".
std::string class_of(const torch::nn::Module& module) {
  auto name = c10::demangle(typeid(module).name());
  name = name.substr(0, name.find('<'));
  if (const auto end = name.find_last_of(":. "); end != name.npos) name.erase(0, end + 1);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name.empty() ? "Module" : name;
}

std::string shapes_of(const torch::nn::Module& module) {
  std::string text;
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    if (!text.empty()) text += ", ";
    text += item.key() + " [";
    for (const auto size : item.value().sizes())
      text += (text.ends_with('[') ? "" : ", ") + std::to_string(size);
    text += ']';
  }
  return text;
}

void add_tree(const torch::nn::Module& module, const std::string& scope, GraphWriter& graph) {
  const auto children = module.named_children();
  auto shapes = shapes_of(module);
  // TensorBoard shows a node with a scope's name inside that scope, so a module with layers gets a node below
  // its scope.
  if (children.is_empty())
    graph.add({.name = graph.unique(scope), .op = class_of(module), .attributes = std::move(shapes)});
  else if (!shapes.empty())
    graph.add({.name = graph.unique(scope + "/parameters"),
               .op = class_of(module),
               .attributes = std::move(shapes)});
  for (const auto& child : children)
    add_tree(*child.value(), scope + '/' + class_of(*child.value()) + '[' + child.key() + ']', graph);
}

/// Walks through a forward, and the methods and functions that it calls.
class ScriptWalk {
 public:
  explicit ScriptWalk(GraphWriter& graph) : graph_(graph) {}

  void run(const torch::jit::Module& module) {
    const auto method = module.find_method("forward");
    if (!method) return;
    const auto body = torch::jit::toGraphFunction(method->function()).graph();
    const auto self = of_module(module, class_of(module));
    std::vector<Known> inputs{self};
    for (std::size_t i = 1; i < body->inputs().size(); ++i) {
      const auto* value = body->inputs()[i];
      GraphNode node{.name = graph_.unique("input/" + base_name(*value)), .op = "IO Node"};
      node.shape = shape_of(*value);
      graph_.add(node);
      inputs.push_back({.node = node.name});
    }
    for (const auto& output : call(*body, self.scope, inputs, 0)) {
      GraphNode node{.name = graph_.unique("output/output"), .op = "IO Node"};
      if (!output.node.empty()) node.inputs.push_back(output.node);
      graph_.add(node);
    }
  }

 private:
  /// A known value: the node that it comes from, the module that it is, or its text.
  struct Known {
    std::string node = {};
    std::string scope = {};
    std::vector<torch::jit::Module> module = {};  // none or one
    std::string text = {};
  };
  using Values = std::unordered_map<const torch::jit::Value*, Known>;

  static std::string class_of(const torch::jit::Module& module) {
    const auto name = module.type()->name();
    return name ? name->name() : "Module";
  }
  static Known of_module(const torch::jit::Module& module, std::string scope) {
    return {.scope = std::move(scope), .module = {module}};
  }

  /// "x" for "x.1".
  static std::string base_name(const torch::jit::Value& value) {
    return value.hasDebugName() ? value.debugNameBase() : value.debugName();
  }

  static std::optional<std::vector<std::int64_t>> shape_of(const torch::jit::Value& value) {
    const auto type = value.type()->cast<c10::TensorType>();
    if (!type) return {};
    const auto sizes = type->sizes().concrete_sizes();
    if (!sizes) return {};
    return *sizes;
  }

  static std::string text_of(const torch::jit::Value& constant) {
    const auto value = torch::jit::toIValue(&constant);
    if (!value || value->isTensor() || value->isObject()) return "...";
    std::ostringstream text;
    text << *value;
    auto result = text.str();
    constexpr std::size_t most = 100;
    if (result.size() > most) result = result.substr(0, most) + "...";
    return result;
  }

  std::vector<Known> call(const torch::jit::Graph& body, const std::string& scope,
                          const std::vector<Known>& inputs, int depth) {
    Values values;
    for (std::size_t i = 0; i < std::min(inputs.size(), body.inputs().size()); ++i)
      values[body.inputs()[i]] = inputs[i];
    walk(*body.block(), scope, values, depth);
    return all_of(body.outputs(), values);
  }

  template <class List>
  static std::vector<Known> all_of(const List& list, Values& values) {
    std::vector<Known> result;
    for (const auto* value : list) result.push_back(values[value]);
    return result;
  }

  void walk(const torch::jit::Block& block, const std::string& scope, Values& values, int depth) {
    for (const auto* node : block.nodes()) {
      const auto kind = node->kind();
      if (kind == c10::prim::Constant)
        values[node->output()].text = text_of(*node->output());
      else if (kind == c10::prim::GetAttr && get_attribute(*node, values))
        continue;
      else if ((kind == c10::prim::CallMethod || kind == c10::prim::CallFunction) &&
               enter(*node, scope, values, depth))
        continue;
      else if (!is_of_constants(*node, values))
        add(*node, scope, values, depth);
    }
  }

  bool get_attribute(const torch::jit::Node& node, Values& values) {
    const auto owner = values[node.input()];
    const auto& name = node.s(c10::attr::name);
    if (owner.module.empty() || !owner.module.front().hasattr(name)) return false;
    const auto attribute = owner.module.front().attr(name);
    auto& value = values[node.output()];
    if (attribute.isModule()) {
      const auto module = attribute.toModule();
      value = of_module(module, owner.scope + '/' + class_of(module) + '[' + name + ']');
    } else if (attribute.isTensor()) {
      const auto place = owner.scope + '/' + name;
      auto& known = attributes_[place];
      if (known.empty()) {
        known = graph_.unique(place);
        GraphNode parameter{.name = known, .op = "prim::GetAttr"};
        parameter.shape = attribute.toTensor().sizes().vec();
        graph_.add(parameter);
      }
      value.node = known;
    } else {
      value.text = name;
    }
    return true;
  }

  /// Follows a node's call, if the callee is known.
  bool enter(const torch::jit::Node& node, const std::string& scope, Values& values, int depth) {
    constexpr int deepest = 200;
    if (depth >= deepest) return false;
    auto inputs = all_of(node.inputs(), values);
    std::vector<Known> outputs;
    if (node.kind() == c10::prim::CallMethod) {
      if (inputs.front().module.empty()) return false;
      const auto method = inputs.front().module.front().find_method(node.s(c10::attr::name));
      if (!method) return false;
      const auto body = torch::jit::toGraphFunction(method->function()).graph();
      outputs = call(*body, inputs.front().scope, inputs, depth + 1);
    } else {
      const auto type = node.input(0)->type()->cast<c10::FunctionType>();
      auto* function = type ? torch::jit::tryToGraphFunction(*type->function()) : nullptr;
      if (!function) return false;
      inputs.erase(inputs.begin());
      outputs = call(*function->graph(), scope, inputs, depth + 1);
    }
    for (std::size_t i = 0; i < std::min(outputs.size(), node.outputs().size()); ++i)
      values[node.outputs()[i]] = std::move(outputs[i]);
    return true;
  }

  /// Whether a node, such as a list of numbers, has only constant inputs, and so a constant output.
  static bool is_of_constants(const torch::jit::Node& node, Values& values) {
    if (node.kind() != c10::prim::ListConstruct && node.kind() != c10::prim::TupleConstruct) return false;
    std::string text = "[";
    for (const auto* input : node.inputs()) {
      if (values[input].text.empty()) return false;
      text += (text.size() > 1 ? ", " : "") + values[input].text;
    }
    values[node.output()].text = text + ']';
    return true;
  }

  void add(const torch::jit::Node& node, const std::string& scope, Values& values, int depth) {
    const std::string kind = node.kind().toQualString();
    GraphNode added{.name = graph_.unique(scope + '/' + kind.substr(kind.find_last_of(':') + 1)), .op = kind};
    const auto* schema = node.maybeSchema();
    for (std::size_t i = 0; i < node.inputs().size(); ++i) {
      const auto& input = values[node.inputs()[i]];
      if (!input.node.empty()) {
        added.inputs.push_back(input.node);
      } else if (!input.text.empty()) {
        if (!added.attributes.empty()) added.attributes += ", ";
        if (schema && i < schema->arguments().size()) added.attributes += schema->arguments()[i].name() + '=';
        added.attributes += input.text;
      }
    }
    const bool loops = node.kind() == c10::prim::Loop;
    for (const auto* block : node.blocks()) {
      // A loop's carried values follow its trip count and condition among the inputs; in its block they
      // follow the counter.
      for (std::size_t i = 1; loops && i < block->inputs().size() && i + 1 < node.inputs().size(); ++i)
        values[block->inputs()[i]] = values[node.inputs()[i + 1]];
      walk(*block, added.name + "_block", values, depth);
      for (const auto* output : block->outputs())
        if (const auto& from = values[output].node; !from.empty()) added.inputs.push_back(from);
    }
    for (std::size_t i = 0; i < node.outputs().size(); ++i)
      values[node.outputs()[i]].node = i == 0 ? added.name : added.name + ':' + std::to_string(i);
    if (!node.outputs().empty()) added.shape = shape_of(*node.outputs()[0]);
    graph_.add(added);
  }

  GraphWriter& graph_;
  std::unordered_map<std::string, std::string> attributes_;  // attributes by node name
};

}  // namespace

std::string graph_of(const Model& model) {
  GraphWriter graph;
  if (const auto module = model.module())
    add_tree(*module, class_of(*module), graph);
  else
    ScriptWalk(graph).run(model.as<torch::jit::Module>());
  return graph.finish();
}

}  // namespace etude::inline v0::detail::tensorboard
