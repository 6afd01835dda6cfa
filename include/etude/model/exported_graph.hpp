#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/types.h>

#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "etude/libtorch/optional.hpp"

namespace etude::inline v0::detail {

/// A tensor that takes part in type promotion like a number.
torch::Tensor wrapped_number(const at::Scalar& number);

/// A graph of operators of LibTorch's dispatcher, as torch.export writes it: arguments are prepared once, and
/// each value is freed after its last use. `read_graph` reads it from a file.
class ExportedGraph {
 public:
  /// The index of a value while the graph runs.
  using Slot = std::size_t;
  static constexpr Slot no_slot = static_cast<Slot>(-1);

  /// One use of a value by a node.
  struct Use {
    Slot slot = no_slot;   ///< `no_slot` for an absent tensor in a list of optional ones
    bool is_last = false;  ///< true if the value can be moved from
  };

  struct Argument {
    enum class Form { constant, value, tensors, optional_tensors, integers };
    /// How a number is converted to the type that the operator takes.
    enum class Conversion { none, to_real, to_tensor };

    Form form = Form::constant;
    c10::IValue constant = {};                           ///< for `integers`, with zeros in place of the uses
    std::optional<c10::IValue> in_evaluation_mode = {};  ///< in place of `constant`
    std::vector<Use> uses = {};                          ///< one for a value, or one per element of a list
    Conversion conversion = Conversion::none;
    bool is_device = false;  ///< true if the constant is the device that the graph runs on
  };

  struct Node {
    enum class Kind { operation, number, grad_mode, autocast, condition, loop };
    /// Replaces numbers on the stack with the result.
    using NumberFunction = void (*)(torch::jit::Stack&);

    std::string name = {};
    Kind kind = Kind::operation;
    libtorch::Optional<c10::OperatorHandle> operation = {};
    NumberFunction number = nullptr;
    /// The body of a region, the two branches of a condition, or the condition and the body of a loop.
    std::vector<ExportedGraph> graphs = {};
    /// The settings of a region: whether gradients are enabled; or autocast's device type and dtype, and
    /// whether it is enabled.
    std::vector<c10::IValue> settings = {};
    bool follows_device = false;  ///< true if autocast is for the device that the graph runs on
    std::size_t carried = 0;      ///< the number of arguments that a loop changes, which come first
    std::vector<Argument> arguments = {};
    std::vector<Slot> outputs = {};
    bool has_out = false;          ///< true if the last argument is memory for the output
    bool gives_list = false;       ///< true if the outputs are the elements of one list
    std::vector<Slot> freed = {};  ///< values that no later node uses

    std::string describe() const;
  };

  std::size_t slots = 0;
  std::vector<Slot> inputs = {};
  std::vector<Slot> outputs = {};                  ///< `no_slot` for one that is absent
  std::vector<c10::IValue> constant_outputs = {};  ///< replace the absent outputs
  std::vector<Node> nodes = {};

  /// Computes the outputs from one value per input. Errors of operators name the node.
  std::vector<c10::IValue> run(std::vector<c10::IValue> given, bool training) const;

  /// Returns the graph without the nodes that need an absent input, and without the nodes whose results are
  /// then unused. Outputs that can't be computed are absent.
  ExportedGraph pruned(const std::vector<bool>& absent_inputs) const;

  /// Makes the graph create new tensors on this device.
  void to(torch::Device device);

  /// Finds the last use of each value. Call it after changing the nodes.
  void find_last_uses();

 private:
  void run_node(const Node& node, std::vector<c10::IValue>& values, torch::jit::Stack& stack,
                bool training) const;
};

/// Removes slices that take a whole tensor, because their backward pass would copy it, and fuses the eight
/// operators of Hugging Face's "gelu_new" into one, which gives the same numbers up to rounding.
void simplify(ExportedGraph& graph);

/// True if a node has an effect besides computing its outputs.
bool has_effect(const ExportedGraph::Node& node);

/// True if two arguments or results of a schema share memory.
bool share_memory(const c10::AliasInfo* a, const c10::AliasInfo* b);

/// Knows which value owns the memory of each value: the value itself, or the value that it views or updates
/// in place.
class MemoryOwners {
 public:
  explicit MemoryOwners(std::size_t slots) : owners_(slots) {
    std::iota(owners_.begin(), owners_.end(), std::size_t{0});
  }

  std::size_t of(std::size_t slot) const { return owners_[slot]; }

  /// Adds a node; nodes are added in their order.
  void add(const ExportedGraph::Node& node);

  /// Calls `visit` with the owner of each value that a node writes to.
  template <class Visit>
  void visit_written(const ExportedGraph::Node& node, Visit visit) const {
    for (std::size_t j = 0; j < node.arguments.size(); ++j) {
      // A nested graph may write to any of its operands.
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
