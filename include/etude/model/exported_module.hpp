#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/model/exported_module.hpp needs a library: link etude::exported"
#endif

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/model/exported_program.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// A model that Python's torch.export wrote; `load_exported` reads it from a file. Parameters and buffers
/// have the names that they have in Python; a tied parameter is one tensor with several names.
class ExportedModuleImpl : public torch::nn::Module {
 public:
  /// The content of a file.
  struct Content {
    std::string name;  ///< of the file, for messages
    detail::ExportedProgram training;
    std::shared_ptr<detail::ExportedProgram> evaluation;  ///< null if `training` serves both modes
    /// Parameters and buffers, also those that aren't part of the state dict. Names of one tensor share it.
    std::map<std::string, torch::Tensor> tensors;
    /// Text files that belong to the model, such as config.json, by name.
    ModelFiles files;
    LossItems loss_items = LossItems::unknown;
  };

  /// Throws CheckpointError if a tensor is missing or its name can't be registered.
  explicit ExportedModuleImpl(Content content);

  /// The outputs, by the names that they have in Python if they have any. Inputs are taken by name, or by
  /// position if they have no names and there is one for each input, or one for the only input that isn't a
  /// label. Outputs that need an input that isn't given, such as the loss without labels, are left out.
  /// Throws DataError for an input that the model doesn't take, sizes that it wasn't exported for, and if no
  /// output can be computed; Error for an operator that can't follow the mode of the module.
  Tensors forward(const Tensors& inputs);

  /// The names of its inputs, in their order in Python.
  std::vector<std::string> input_names() const;

  /// Text files that belong to the model, such as config.json, by name.
  const ModelFiles& files() const { return files_; }

  /// The labels that its own loss is a mean over, if `tools/export.py` found them.
  LossItems loss_items() const { return loss_items_; }

  /// As in Python, only floating-point tensors take another dtype; constants of the graph too.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  /// A graph with the tensors that it is bound to.
  struct Bound {
    detail::ExportedProgram program;
    std::vector<std::pair<std::size_t, torch::Tensor>> tensors;  // by input of the graph
    std::vector<std::pair<std::size_t, torch::Tensor>> mutated;  // buffers by output of the graph
    std::vector<std::vector<std::int64_t>> checked;  // sizes and dtypes of the inputs that passed last
    /// The graph for a batch that lacks inputs.
    std::map<std::vector<bool>, detail::ExportedGraph> partial = {};
  };

  void register_state(const detail::ExportedProgram& program);
  torch::Tensor tensor_of(const detail::ExportedProgram& program, const detail::ExportedState& state) const;
  Bound bound(detail::ExportedProgram program) const;
  void convert(std::optional<torch::Device> device, std::optional<torch::Dtype> dtype, bool non_blocking);
  std::vector<torch::Tensor> ordered(const detail::ExportedProgram& program, const Tensors& inputs) const;
  static const detail::ExportedGraph& graph_for(Bound& bound, const std::vector<torch::Tensor>& given);
  [[noreturn]] void refuse_mode(const std::string& operation, std::string_view mode) const;

  std::string file_;
  ModelFiles files_;
  LossItems loss_items_;
  std::map<std::string, torch::Tensor> tensors_;  // parameters and buffers
  std::vector<torch::Tensor> constants_;          // tensors that aren't registered
  Bound training_;
  std::unique_ptr<Bound> evaluation_;  // null if `training_` serves both modes
  std::mutex mutex_;
};

TORCH_MODULE(ExportedModule);

}  // namespace etude::inline v0
