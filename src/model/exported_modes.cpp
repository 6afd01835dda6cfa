#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include "etude/model/exported_program.hpp"

namespace etude::inline v0::detail {

namespace {

template <class Visit>
void visit_operations(ExportedGraph& graph, Visit visit) {
  for (auto& node : graph.nodes) {
    if (node.operation) visit(node);
    for (auto& inner : node.graphs) visit_operations(inner, visit);
  }
}

/// The node's argument of that name; null if its operator has none.
ExportedGraph::Argument* argument_named(ExportedGraph::Node& node, std::string_view name) {
  const auto& formal = node.operation->schema().arguments();
  const auto found = std::ranges::find(
      formal, name, [](const auto& argument) -> const std::string& { return argument.name(); });
  return found == formal.end() ? nullptr : &node.arguments[static_cast<std::size_t>(found - formal.begin())];
}

/// True for a norm without running statistics, which uses the batch's statistics in both modes.
bool has_no_running_statistics(ExportedGraph::Node& node) {
  const auto* mean = argument_named(node, "running_mean");
  return mean && mean->form == ExportedGraph::Argument::Form::constant;
}

/// The argument that says whether an operator is in training mode; null if there is none. An operator that
/// returns new running statistics can't follow the mode, since it updates them in both modes.
ExportedGraph::Argument* mode_argument(ExportedGraph::Node& node) {
  const auto& operation = node.operation->schema().name();
  if (!operation.starts_with("aten::") || operation.ends_with("_functional") ||
      has_no_running_statistics(node))
    return nullptr;
  for (const auto* name : {"train", "training", "use_input_stats"})
    if (auto* argument = argument_named(node, name);
        argument && argument->form == ExportedGraph::Argument::Form::constant && argument->constant.isBool())
      return argument;
  return nullptr;
}

/// Makes batch norms count their batches only in training mode.
void stop_counters_in_evaluation(ExportedProgram& program) {
  std::set<ExportedGraph::Slot> counters;
  for (const auto& state : program.states)
    if (state.name.ends_with("num_batches_tracked")) counters.insert(program.graph.inputs[state.index]);
  for (auto& node : program.graph.nodes) {
    if (!node.operation || node.operation->schema().name() != "aten::add_") continue;
    const auto& uses = node.arguments.front().uses;
    auto* factor = argument_named(node, "alpha");
    if (factor && !uses.empty() && counters.contains(uses.front().slot)) factor->in_evaluation_mode = 0;
  }
}

/// The name of an operator that may change a buffer in evaluation mode too; empty if there is none.
std::string writer_of_buffers(ExportedProgram& program) {
  std::set<ExportedGraph::Slot> buffers;
  for (const auto& state : program.states)
    if (state.kind == ExportedState::Kind::buffer && !state.name.ends_with("num_batches_tracked"))
      buffers.insert(program.graph.inputs[state.index]);
  MemoryOwners owners(program.graph.slots);
  std::string writer;
  for (auto& node : program.graph.nodes) {
    owners.add(node);
    const bool follows_mode = node.operation && mode_argument(node);
    if (!follows_mode)
      owners.visit_written(node, [&](ExportedGraph::Slot owner) {
        if (buffers.contains(owner)) writer = node.operation ? node.operation->schema().name() : node.name;
      });
  }
  return writer;
}

}  // namespace

void follow_mode(ExportedProgram& program) {
  bool trains = false, evaluates = false;
  visit_operations(program.graph, [&](auto& node) {
    if (const auto* argument = mode_argument(node)) (argument->constant.toBool() ? trains : evaluates) = true;
    const auto* dropout = argument_named(node, "dropout_p");
    if (dropout && dropout->constant.isDouble() && dropout->constant.toDouble() > 0) trains = true;
  });
  const bool was_evaluating = evaluates && !trains;
  stop_counters_in_evaluation(program);
  visit_operations(program.graph, [&](auto& node) {
    const auto& operation = node.operation->schema().name();
    if (auto* argument = mode_argument(node)) {
      if (was_evaluating) argument->constant = true;
      argument->in_evaluation_mode = false;
    } else if (auto* dropout = argument_named(node, "dropout_p"); dropout && dropout->constant.isDouble()) {
      dropout->in_evaluation_mode = 0.0;
      if (was_evaluating && program.no_training.empty()) program.no_training = operation;
    } else if (operation == "aten::_native_batch_norm_legit_no_training" ||
               operation == "aten::_batch_norm_no_update") {
      program.no_training = operation;
    } else if (operation == "aten::_native_batch_norm_legit_functional" ||
               operation.starts_with("aten::_batch_norm_with_update") ||
               node.operation->hasTag(at::Tag::nondeterministic_seeded)) {
      program.no_evaluation = operation;
    }
  });
  if (const auto writer = writer_of_buffers(program); !writer.empty()) program.no_evaluation = writer;
}

}  // namespace etude::inline v0::detail
