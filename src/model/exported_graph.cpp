#include "etude/model/exported_graph.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/torch_error.hpp"

namespace etude::inline v0::detail {

torch::Tensor wrapped_number(const at::Scalar& number) {
  auto tensor = at::scalar_tensor(number, at::TensorOptions().dtype(number.type()));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

std::string ExportedGraph::Node::describe() const {
  return operation ? fmt::format("node {} ({})", name, operation->schema().name())
                   : fmt::format("node {}", name);
}

namespace {

using GraphValues = std::vector<c10::IValue>;

/// Replaces an undefined tensor with None, which operators refuse where they need a tensor; they would accept
/// the undefined one.
c10::IValue defined_or_none(c10::IValue value) {
  return value.isTensor() && !value.toTensor().defined() ? c10::IValue() : value;
}

c10::IValue taken(GraphValues& values, const ExportedGraph::Use& use) {
  auto& value = values[use.slot];
  return use.is_last ? std::move(value) : value;
}

void push(torch::jit::Stack& stack, const ExportedGraph::Argument& argument, GraphValues& values,
          bool training) {
  using Form = ExportedGraph::Argument::Form;
  using Conversion = ExportedGraph::Argument::Conversion;
  switch (argument.form) {
    case Form::constant:
      stack.push_back(!training && argument.in_evaluation_mode ? *argument.in_evaluation_mode
                                                               : argument.constant);
      return;
    case Form::value:
      stack.push_back(taken(values, argument.uses.front()));
      if (argument.conversion == Conversion::to_real)
        stack.back() = stack.back().toScalar().toDouble();
      else if (argument.conversion == Conversion::to_tensor)
        stack.back() = wrapped_number(stack.back().toScalar());
      return;
    case Form::tensors: {
      c10::List<torch::Tensor> list;
      list.reserve(argument.uses.size());
      for (const auto& use : argument.uses) list.push_back(taken(values, use).toTensor());
      stack.emplace_back(std::move(list));
      return;
    }
    case Form::optional_tensors: {
      using OptionalTensor = libtorch::Optional<torch::Tensor>;
      c10::List<OptionalTensor> list;
      list.reserve(argument.uses.size());
      for (const auto& use : argument.uses)
        list.push_back(use.slot == ExportedGraph::no_slot ? OptionalTensor()
                                                          : OptionalTensor(taken(values, use).toTensor()));
      stack.emplace_back(std::move(list));
      return;
    }
    case Form::integers: {
      auto list = argument.constant.toIntList().copy();
      for (std::size_t i = 0; i < argument.uses.size(); ++i)
        if (const auto slot = argument.uses[i].slot; slot != ExportedGraph::no_slot)
          list.set(i, values[slot].toInt());
      stack.emplace_back(std::move(list));
    }
  }
}

bool is_true(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().item().toBool() : value.toScalar().toBool();
}

/// Runs a node that has nested graphs. Its arguments are on the stack, where its results replace them.
void run_graphs(const ExportedGraph::Node& node, torch::jit::Stack& stack, bool training) {
  using Kind = ExportedGraph::Node::Kind;
  GraphValues given(std::make_move_iterator(stack.begin()), std::make_move_iterator(stack.end()));
  GraphValues results;
  if (node.kind == Kind::grad_mode) {
    const torch::AutoGradMode mode(node.settings[0].toBool());
    results = node.graphs[0].run(std::move(given), training);
  } else if (node.kind == Kind::autocast) {
    const auto device = static_cast<torch::DeviceType>(node.settings[0].toInt());
    const bool enabled = node.settings[2].toBool();
    const auto dtype = node.settings[1].isNone() ? autocast_in_force(device).value_or(torch::kBFloat16)
                                                 : static_cast<torch::ScalarType>(node.settings[1].toInt());
    const AutocastGuard autocast(device, enabled ? std::optional(dtype) : std::nullopt);
    results = node.graphs[0].run(std::move(given), training);
  } else if (node.kind == Kind::condition) {
    const bool holds = is_true(given.front());
    given.erase(given.begin());
    results = node.graphs[holds ? 0 : 1].run(std::move(given), training);
  } else {
    const auto end_of_carried = static_cast<std::ptrdiff_t>(node.carried);
    while (is_true(node.graphs[0].run(given, training).front())) {
      auto carried = node.graphs[1].run(given, training);
      std::ranges::move(carried, given.begin());
    }
    results.assign(given.begin(), given.begin() + end_of_carried);
  }
  stack.assign(std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
}

/// Calls a node's operator. Throws DataError if it resizes the memory that it is given for its output, which
/// may belong to the model.
void call(const ExportedGraph::Node& node, torch::jit::Stack& stack) {
  if (!node.has_out) return node.operation->callBoxed(stack);
  const torch::Tensor out = stack.back().toTensor();
  const auto sizes = out.sizes().vec();
  node.operation->callBoxed(stack);
  if (out.sizes() != sizes)
    throw DataError(fmt::format("{} gives {} for memory of sizes {}", node.describe(), out.sizes(), sizes));
}

}  // namespace

void ExportedGraph::run_node(const Node& node, GraphValues& values, torch::jit::Stack& stack,
                             bool training) const {
  stack.clear();
  for (const auto& argument : node.arguments) push(stack, argument, values, training);
  if (node.kind == Node::Kind::operation)
    call(node, stack);
  else if (node.kind == Node::Kind::number)
    node.number(stack);
  else
    run_graphs(node, stack, training);
  if (node.gives_list) {
    const auto list = stack.front().toTensorVector();
    if (list.size() != node.outputs.size())
      throw DataError(fmt::format("{} gives {} tensors, but {} when the model was exported", node.describe(),
                                  list.size(), node.outputs.size()));
    for (std::size_t i = 0; i < list.size(); ++i) values[node.outputs[i]] = defined_or_none(list[i]);
  } else {
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      values[node.outputs[i]] = defined_or_none(std::move(stack[i]));
  }
  for (const auto slot : node.freed) values[slot] = c10::IValue();
}

GraphValues ExportedGraph::run(GraphValues given, bool training) const {
  GraphValues values(slots);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] != no_slot) values[inputs[i]] = std::move(given[i]);
  torch::jit::Stack stack;
  const Node* now = nullptr;
  with_place(
      [&] {
        for (const auto& node : nodes) {
          now = &node;
          run_node(node, values, stack, training);
        }
      },
      [&] { return now->describe(); });
  GraphValues results;
  results.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    results.push_back(outputs[i] == no_slot ? constant_outputs[i] : values[outputs[i]]);
  return results;
}

void ExportedGraph::find_last_uses() {
  std::vector<bool> needed(slots);
  for (const auto slot : outputs)
    if (slot != no_slot) needed[slot] = true;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    node->freed.clear();
    for (const auto slot : node->outputs)
      if (!needed[slot]) node->freed.push_back(slot);
    std::vector<Slot> last;
    for (auto argument = node->arguments.rbegin(); argument != node->arguments.rend(); ++argument)
      for (auto use = argument->uses.rbegin(); use != argument->uses.rend(); ++use) {
        if (use->slot == no_slot) continue;
        // An integer in a list is copied out of its slot, not moved.
        use->is_last = !needed[use->slot] && argument->form != Argument::Form::integers;
        if (!needed[use->slot] && !use->is_last) last.push_back(use->slot);
        needed[use->slot] = true;
      }
    node->freed.insert(node->freed.end(), last.begin(), last.end());
  }
}

ExportedGraph ExportedGraph::pruned(const std::vector<bool>& absent_inputs) const {
  ExportedGraph result = *this;
  std::vector<bool> absent(slots), needed(slots), stale(slots);  // stale: a node that wrote to it was removed
  MemoryOwners owners(slots);
  const auto is_lacking = [&](Slot slot) { return absent[slot] || stale[owners.of(slot)]; };
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (absent_inputs[i] && inputs[i] != no_slot) absent[inputs[i]] = true;
  std::erase_if(result.nodes, [&](const Node& node) {
    const bool goes = std::ranges::any_of(node.arguments, [&](const auto& argument) {
      return std::ranges::any_of(
          argument.uses, [&](const auto& use) { return use.slot != no_slot && is_lacking(use.slot); });
    });
    if (!goes) {
      owners.add(node);
      return false;
    }
    owners.visit_written(node, [&](Slot owner) { stale[owner] = true; });
    for (const auto slot : node.outputs) absent[slot] = true;
    return true;
  });
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto& slot = result.outputs[i];
    if (slot == no_slot) continue;
    if (is_lacking(slot))
      slot = no_slot;
    else
      needed[slot] = true;
  }
  std::vector<Node> kept;
  for (auto node = result.nodes.rbegin(); node != result.nodes.rend(); ++node) {
    const bool is_needed =
        has_effect(*node) || std::ranges::any_of(node->outputs, [&](Slot slot) { return needed[slot]; });
    if (!is_needed) continue;
    for (const auto& argument : node->arguments)
      for (const auto& use : argument.uses)
        if (use.slot != no_slot) needed[use.slot] = true;
    kept.push_back(std::move(*node));
  }
  std::ranges::reverse(kept);
  result.nodes = std::move(kept);
  result.find_last_uses();
  return result;
}

void ExportedGraph::to(torch::Device device) {
  for (auto& node : nodes) {
    for (auto& argument : node.arguments)
      if (argument.is_device) argument.constant = device;
    if (node.follows_device) node.settings[0] = static_cast<std::int64_t>(device.type());
    for (auto& graph : node.graphs) graph.to(device);
  }
}

bool has_effect(const ExportedGraph::Node& node) {
  if (node.operation)
    return node.outputs.empty() || node.operation->schema().is_mutable() ||
           node.operation->hasTag(at::Tag::nondeterministic_seeded);
  return std::ranges::any_of(node.graphs,
                             [](const auto& graph) { return std::ranges::any_of(graph.nodes, has_effect); });
}

bool share_memory(const c10::AliasInfo* a, const c10::AliasInfo* b) {
  if (!a || !b) return false;
  const auto sets = [](const c10::AliasInfo& info) {
    auto all = info.beforeSets();
    for (const auto& element : info.containedTypes())
      all.insert(element.beforeSets().begin(), element.beforeSets().end());
    return all;
  };
  const auto others = sets(*b);
  return std::ranges::any_of(sets(*a), [&](const auto& set) { return others.contains(set); });
}

void MemoryOwners::add(const ExportedGraph::Node& node) {
  if (!node.operation) return;
  const auto& schema = node.operation->schema();
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const auto* returned = schema.returns()[node.gives_list ? 0 : i].alias_info();
    for (std::size_t j = 0; j < node.arguments.size(); ++j)
      if (!node.arguments[j].uses.empty() && node.arguments[j].uses[0].slot != ExportedGraph::no_slot &&
          share_memory(returned, schema.arguments()[j].alias_info()))
        owners_[node.outputs[i]] = owners_[node.arguments[j].uses[0].slot];
  }
}

}  // namespace etude::inline v0::detail
