#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/model/exported_compiled.hpp needs a library: link etude::exported"
#endif

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/libtorch/compiled_library.hpp"
#include "etude/model/compiled_graph.hpp"
#include "etude/model/exported_compiled_spec.hpp"
#include "etude/model/exported_program.hpp"

namespace etude::inline v0 {

class Pt2Archive;

namespace detail {

/// Throws a CheckpointError that begins with `where` unless the bytes are a complete 64-bit shared library.
void check_library(std::string_view bytes, std::string_view where);

/// Throws a CheckpointError that begins with `where` if a compiled graph takes or returns tensors that the
/// exported graph doesn't have, or doesn't return one of its outputs or a buffer that its operators declare
/// that they change.
void check_compiled_spec(const CompiledSpec& spec, const ExportedProgram& program, std::string_view where);

/// A compiled graph that has been loaded for a device.
struct CompiledGraph {
  CompiledSpec spec;
  libtorch::CompiledLibrary library;
};

/// The compiled graphs of a file, which a module shares with its clones. Threads must not call it at the same
/// time.
class CompiledGraphs {
 public:
  /// Reads the manifest. Throws CheckpointError.
  explicit CompiledGraphs(std::shared_ptr<const Pt2Archive> archive);

  struct Found {
    std::shared_ptr<const CompiledGraph> graph;  ///< null if there is none
    std::string why_not;                         ///< the reason, if there is none
  };

  /// The graph for a device and a dtype of autocast. The first call loads it, which runs its native code.
  /// Throws CheckpointError if that fails, or if the graph doesn't fit `program`.
  Found find(torch::Device device, std::optional<torch::ScalarType> autocast, const ExportedProgram& program);

 private:
  std::shared_ptr<const CompiledGraph> load(const CompiledEntry& entry, torch::Device device,
                                            const ExportedProgram& program) const;

  std::shared_ptr<const Pt2Archive> archive_;
  std::vector<CompiledEntry> entries_;
  std::map<std::pair<std::size_t, std::string>, std::shared_ptr<const CompiledGraph>> loaded_;
};

/// A graph, and the tensors of a module that it takes and writes.
struct BoundCompiledGraph {
  std::shared_ptr<const CompiledGraph> graph;
  std::vector<torch::Tensor> tensors = {};  ///< one for each input; undefined for a batch's and the scale
  /// For each input of a batch: its index in the graph's inputs and in ExportedProgram::inputs.
  std::vector<std::pair<std::size_t, std::size_t>> batch = {};
  /// The buffers that the graph changes, with the indices of the outputs that are their new values.
  std::vector<std::pair<std::size_t, torch::Tensor>> buffers = {};
  /// For each output of the program that the graph returns, in the program's order: its index in the graph's
  /// outputs and in ExportedProgram::outputs.
  std::vector<std::pair<std::size_t, std::size_t>> outputs = {};
};

/// Binds a graph that `check_compiled_spec` accepted; `tensor_of` returns the module's tensor for a state.
BoundCompiledGraph bind_compiled(std::shared_ptr<const CompiledGraph> graph, const ExportedProgram& program,
                                 const std::function<torch::Tensor(const ExportedState&)>& tensor_of);

/// Runs a graph on a batch, whose tensors are in the program's order; one that the batch lacks is undefined.
/// Throws an Error that begins with `model`, the name for messages, if the graph fails.
HasCompiledGraph::Result run_compiled(const BoundCompiledGraph& bound,
                                      const std::vector<torch::Tensor>& given, torch::Device device,
                                      const ExportedProgram& program, const std::string& model);

}  // namespace detail
}  // namespace etude::inline v0
