#pragma once

#include <torch/types.h>

#include <optional>
#include <string>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

/// A module that may have a compiled graph of its training step: outputs, loss and gradients in one call.
/// ExportedModule is one.
class HasCompiledGraph {
 public:
  struct Result {
    Tensors outputs;      ///< those of `forward`; empty if the graph can't compute this batch
    std::string why_not;  ///< the reason, if `outputs` is empty
  };

  /// Computes the outputs of `forward` in training mode, and the gradients of the loss with them: a backward
  /// pass from the loss returns those, and asking for the gradient of any other output throws Error there.
  /// Changes nothing if the graph can't compute this batch. Throws as `forward` does.
  virtual Result forward_compiled(const Tensors& inputs) = 0;

  /// False if there is no graph and the program hasn't asked for one. A training then gives no reason for not
  /// using it.
  virtual bool has_compiled_graph() const { return true; }

  /// Returns why the graph can't be used with this dtype of autocast, whatever the batch is; empty if it can.
  /// Called when a training begins, with the model's parameters and device as they are then. May load the
  /// graph, and throws if that fails.
  virtual std::string why_no_graph(std::optional<torch::ScalarType> /*autocast*/) { return {}; }

 protected:
  ~HasCompiledGraph() = default;
};

}  // namespace etude::inline v0
