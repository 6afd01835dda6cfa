#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/model/exported_graph.hpp"

namespace etude::inline v0::detail {

namespace {

/// Finds groups of nodes that together compute a known operation.
class GraphPatterns {
 public:
  using Graph = ExportedGraph;
  using Node = Graph::Node;
  using Slot = Graph::Slot;

  explicit GraphPatterns(const Graph& graph) : producers_(graph.slots), uses_(graph.slots) {
    for (const auto& node : graph.nodes) {
      for (const auto slot : node.outputs) producers_[slot] = &node;
      for (const auto& argument : node.arguments)
        for (const auto& use : argument.uses)
          if (use.slot != Graph::no_slot) ++uses_[use.slot];
    }
    for (const auto slot : graph.outputs)
      if (slot != Graph::no_slot) ++uses_[slot];
  }

  /// The operand x of "gelu_new", 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel
  /// 2016), if `node` is its last operator.
  std::optional<Slot> operand_of_gelu(const Node& node) const {
    const auto halved_and_gate = operands(node, "aten::mul", "Tensor");
    if (!halved_and_gate) return {};
    for (const auto& [halved, gate] :
         {*halved_and_gate, std::pair(halved_and_gate->second, halved_and_gate->first)}) {
      const auto x = times(halved, 0.5);
      const auto tanh = x ? plus_one(gate) : std::nullopt;
      const auto inner = tanh ? operand(*tanh, "aten::tanh") : std::nullopt;
      const auto sum = inner ? times(*inner, std::sqrt(2 / std::numbers::pi)) : std::nullopt;
      if (sum && is_x_plus_cube(*sum, *x)) return x;
    }
    return {};
  }

 private:
  /// The node that computes a value, if the value is used only once.
  const Node* only_for(Slot slot) const { return uses_[slot] == 1 ? producers_[slot] : nullptr; }

  static bool is(const Node& node, std::string_view name, std::string_view overload = "") {
    return node.operation && node.operation->schema().name() == name &&
           node.operation->schema().overload_name() == overload;
  }

  static std::optional<Slot> slot_of(const Graph::Argument& argument) {
    return argument.form == Graph::Argument::Form::value ? std::optional(argument.uses[0].slot)
                                                         : std::nullopt;
  }

  static bool equals(const Graph::Argument& argument, double number) {
    if (argument.form != Graph::Argument::Form::constant) return false;
    const auto& value = argument.constant;
    const bool is_number = value.isScalar() || (value.isTensor() && value.toTensor().dim() == 0);
    if (!is_number) return false;
    const double given = value.isTensor() ? value.toTensor().item<double>() : value.toScalar().toDouble();
    return std::abs(given - number) < 1e-6 * std::abs(number);
  }

  static std::optional<std::pair<Slot, Slot>> operands(const Node& node, std::string_view name,
                                                       std::string_view overload) {
    if (!is(node, name, overload)) return {};
    const auto a = slot_of(node.arguments[0]), b = slot_of(node.arguments[1]);
    return a && b ? std::optional(std::pair(*a, *b)) : std::nullopt;
  }

  std::optional<Slot> operand(Slot slot, std::string_view name) const {
    const auto* node = only_for(slot);
    return node && is(*node, name) ? slot_of(node->arguments[0]) : std::nullopt;
  }

  /// Returns x if a value is x * factor.
  std::optional<Slot> times(Slot slot, double factor) const {
    const auto* node = only_for(slot);
    const bool fits = node && is(*node, "aten::mul", "Tensor") && equals(node->arguments[1], factor);
    return fits ? slot_of(node->arguments[0]) : std::nullopt;
  }

  std::optional<Slot> plus_one(Slot slot) const {
    const auto* node = only_for(slot);
    const bool fits = node && is(*node, "aten::add", "Tensor") && equals(node->arguments[1], 1) &&
                      equals(node->arguments[2], 1);
    return fits ? slot_of(node->arguments[0]) : std::nullopt;
  }

  /// True if a value is x + 0.044715 x^3.
  bool is_x_plus_cube(Slot slot, Slot x) const {
    const auto* node = only_for(slot);
    const auto sum =
        node && equals(node->arguments.back(), 1) ? operands(*node, "aten::add", "Tensor") : std::nullopt;
    const auto cube = sum && sum->first == x ? times(sum->second, 0.044715) : std::nullopt;
    const auto* power = cube ? only_for(*cube) : nullptr;
    return power && is(*power, "aten::pow", "Tensor_Scalar") && equals(power->arguments[1], 3) &&
           slot_of(power->arguments[0]) == x;
  }

  std::vector<const Node*> producers_;  // by slot
  std::vector<std::size_t> uses_;       // by slot
};

/// True if a node is a slice that takes its whole argument.
bool takes_everything(const ExportedGraph::Node& node) {
  if (!node.operation || node.operation->schema().name() != "aten::slice") return false;
  const auto number = [&](std::size_t i, std::int64_t otherwise) {
    const auto& argument = node.arguments[i];
    if (argument.form != ExportedGraph::Argument::Form::constant) return std::optional<std::int64_t>();
    return std::optional(argument.constant.isInt() ? argument.constant.toInt() : otherwise);
  };
  constexpr auto end = std::numeric_limits<std::int64_t>::max();
  return node.arguments[0].form == ExportedGraph::Argument::Form::value && number(2, 0) == 0 &&
         number(3, end) == end && number(4, 1) == 1;
}

}  // namespace

void simplify(ExportedGraph& graph) {
  std::vector<ExportedGraph::Slot> now(graph.slots);
  for (std::size_t i = 0; i < now.size(); ++i) now[i] = i;
  // An operator that reshapes its argument in place needs a separate view.
  std::set<ExportedGraph::Slot> reshaped;
  for (const auto& node : graph.nodes)
    if (node.operation && node.operation->hasTag(at::Tag::inplace_view) && !node.arguments[0].uses.empty())
      reshaped.insert(node.arguments[0].uses[0].slot);
  std::erase_if(graph.nodes, [&](ExportedGraph::Node& node) {
    for (auto& argument : node.arguments)
      for (auto& use : argument.uses)
        if (use.slot != ExportedGraph::no_slot) use.slot = now[use.slot];
    for (auto& inner : node.graphs) simplify(inner);
    if (!takes_everything(node) || reshaped.contains(node.outputs[0])) return false;
    now[node.outputs[0]] = node.arguments[0].uses[0].slot;
    return true;
  });
  for (auto& slot : graph.outputs)
    if (slot != ExportedGraph::no_slot) slot = now[slot];

  if (const auto gelu = c10::Dispatcher::singleton().findSchema({"aten::gelu", ""})) {
    const GraphPatterns patterns(graph);
    std::vector<std::pair<ExportedGraph::Node*, ExportedGraph::Slot>> found;
    for (auto& node : graph.nodes)
      if (const auto operand = patterns.operand_of_gelu(node)) found.emplace_back(&node, *operand);
    for (const auto& [node, operand] : found) {
      node->operation = gelu;
      node->arguments = {{.form = ExportedGraph::Argument::Form::value, .uses = {{operand}}},
                         {.constant = "tanh"}};
    }
    if (!found.empty()) graph = graph.pruned(std::vector<bool>(graph.inputs.size()));
  }
  graph.find_last_uses();
}

}  // namespace etude::inline v0::detail
