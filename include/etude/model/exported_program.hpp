#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/model/exported_graph.hpp"
#include "etude/model/exported_sizes.hpp"

namespace etude::inline v0::detail {

/// One size of an input, as the file states it.
struct ExportedSize {
  std::int64_t fixed = -1;  ///< the size; negative if it may vary
  std::string symbol = {};  ///< sizes with the same symbol are equal; empty if there is a formula
  std::optional<SizeExpression> formula = {};  ///< computes it from symbols, if it depends on other sizes
  std::int64_t least = 0;
  std::optional<std::int64_t> most = {};
};

/// A condition on sizes that the file states, besides the limits of single sizes.
struct ExportedCondition {
  SizeExpression expression;        ///< must be true, or within the limits if there are any
  std::vector<std::size_t> inputs;  ///< the index of each variable's input; unused for symbols
  std::optional<std::int64_t> least = {}, most = {};
};

struct ExportedInput {
  std::string name;
  std::size_t index = 0;  ///< its index among the graph's inputs
  torch::ScalarType dtype = torch::kFloat;
  std::vector<ExportedSize> sizes = {};
};

/// A tensor of the model that is an input of the graph.
struct ExportedState {
  enum class Kind { parameter, buffer, constant };
  Kind kind;
  std::string name;
  std::size_t index = 0;  ///< its index among the graph's inputs
  bool requires_grad = false;
  bool is_persistent = true;  ///< part of the state dict
  bool normalizes = false;    ///< true if a normalization operator uses it as its weight or bias
};

/// One graph of a file: the model in training mode, in evaluation mode, or in both.
struct ExportedProgram {
  ExportedGraph graph;
  std::map<std::string, std::string> classes =
      {};  ///< Python's class of each module, by path; the model's path is empty
  std::vector<ExportedState> states;
  std::map<std::string, torch::Tensor> constants = {};  ///< the tensors of `states` of kind constant
  std::vector<ExportedInput> inputs;
  std::vector<std::size_t> outputs;       ///< indices of the graph's outputs that forward returns
  std::vector<std::string> output_names;  ///< one per output, or empty
  std::vector<std::size_t> output_places =
      {};  ///< their positions in Python, where numbers and None count too
  std::vector<std::pair<std::size_t, std::string>>
      mutations;  ///< outputs of the graph that are new values of buffers
  std::vector<ExportedCondition> conditions;
  bool has_conditions_of_layout = false;  ///< true if a condition is about strides or offsets

  /// The operators that keep the graph from running in training mode, or in evaluation mode; empty if there
  /// are none.
  std::string no_training, no_evaluation;

  /// Throws DataError for inputs with the wrong number of dimensions, the wrong kind of dtype, or sizes that
  /// the model wasn't exported for. Conditions on undefined tensors aren't checked.
  void check_inputs(const std::vector<torch::Tensor>& given) const;
};

/// Reads a whole program, the graph and everything around it, from JSON. Throws a CheckpointError that begins
/// with `where`.
ExportedProgram read_program(std::string_view json, std::string_view where);

/// Makes operators that depend on the mode, such as dropout, follow the module's mode.
void follow_mode(ExportedProgram& program);

}  // namespace etude::inline v0::detail
