#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "etude/model/exported_graph.hpp"

/// The effects of nodes on memory, as the schemas of their operators tell them.
namespace etude::inline v0::detail {

/// Whether a node does something besides computing its outputs.
inline bool has_effect(const ExportedGraph::Node& node) {
  if (node.operation)
    return node.outputs.empty() || node.operation->schema().is_mutable() ||
           node.operation->hasTag(at::Tag::nondeterministic_seeded);
  return std::ranges::any_of(node.graphs,
                             [](const auto& graph) { return std::ranges::any_of(graph.nodes, has_effect); });
}

/// Whether two places of a schema share memory.
inline bool share_memory(const c10::AliasInfo* a, const c10::AliasInfo* b) {
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

/// For each value the one whose memory it has: its own, or another that it is a view of or that was changed
/// in place.
class MemoryOwners {
 public:
  explicit MemoryOwners(std::size_t slots) : owners_(slots) {
    std::iota(owners_.begin(), owners_.end(), std::size_t{0});
  }

  std::size_t of(std::size_t slot) const { return owners_[slot]; }

  /// Adds a node; nodes are added in their order.
  void add(const ExportedGraph::Node& node) {
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

  /// Calls `visit` with the owner of each value that a node writes to.
  template <class Visit>
  void visit_written(const ExportedGraph::Node& node, Visit visit) const {
    for (std::size_t j = 0; j < node.arguments.size(); ++j) {
      // A graph within may write to all of its operands.
      const auto* info = node.operation ? node.operation->schema().arguments()[j].alias_info() : nullptr;
      const bool writes = node.operation ? info && info->isWrite() : has_effect(node);
      if (!writes) continue;
      for (const auto& use : node.arguments[j].uses)
        if (use.slot != ExportedGraph::no_slot) visit(owners_[use.slot]);
    }
  }

 private:
  std::vector<std::size_t> owners_;
};

}  // namespace etude::inline v0::detail
