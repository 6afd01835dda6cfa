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

/// A size of an input, as the file states it.
struct ExportedSize {
  std::int64_t fixed = -1;  ///< if it isn't negative
  std::string symbol = {};  ///< sizes with the same symbol are equal; empty for one that depends on others
  std::optional<SizeExpression> formula = {};  ///< of symbols, for one that depends on others
  std::int64_t least = 0;
  std::optional<std::int64_t> most = {};
};

/// A condition of sizes that the file states, besides those of single sizes.
struct ExportedCondition {
  SizeExpression expression;        ///< must be true if it has no limits
  std::vector<std::size_t> inputs;  ///< by variable; of no meaning for symbols
  std::optional<std::int64_t> least = {}, most = {};
};

struct ExportedInput {
  std::string name;
  std::size_t index = 0;  ///< in the inputs of the graph
  torch::ScalarType dtype = torch::kFloat;
  std::vector<ExportedSize> sizes = {};
};

/// A tensor of the model that is an input of the graph.
struct ExportedState {
  enum class Kind { parameter, buffer, constant };
  Kind kind;
  std::string name;
  std::size_t index = 0;  ///< in the inputs of the graph
  bool requires_grad = false;
  bool is_persistent = true;  ///< part of the state dict
  bool normalizes = false;    ///< an operator of normalization takes it for its weight or bias
};

/// One graph of a file: the model in training mode, in evaluation mode, or in both.
struct ExportedProgram {
  ExportedGraph graph;
  std::map<std::string, std::string> classes =
      {};  ///< of Python's modules, by path; that of the model is empty
  std::vector<ExportedState> states;
  std::map<std::string, torch::Tensor> constants = {};  ///< the tensors of that kind of state
  std::vector<ExportedInput> inputs;
  std::vector<std::size_t> outputs;       ///< the tensors that forward returns, in the outputs of the graph
  std::vector<std::string> output_names;  ///< one per output, or empty
  std::vector<std::pair<std::size_t, std::string>>
      mutations;  ///< outputs of the graph that are new values of buffers
  std::vector<ExportedCondition> conditions;
  bool has_conditions_of_layout = false;  ///< of strides or offsets

  /// The operator that keeps a graph from running in the other mode than it was exported in; empty if none.
  std::string no_training, no_evaluation;

  /// Throws DataError for inputs of another number of dimensions, another kind of dtype, or sizes that the
  /// model wasn't exported for. Conditions of undefined tensors aren't checked.
  void check_inputs(const std::vector<torch::Tensor>& given) const;
};

/// Reads the JSON of a graph with everything around it. Throws CheckpointError that begins with `where`.
ExportedProgram read_program(std::string_view json, std::string_view where);

/// Lets operators that depend on the mode, dropout and the like, follow the mode of the module.
void follow_mode(ExportedProgram& program);

}  // namespace etude::inline v0::detail
