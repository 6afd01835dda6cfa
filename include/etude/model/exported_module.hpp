#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/model/exported_module.hpp needs a library: link etude::exported"
#endif

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/libtorch/optional.hpp"
#include "etude/model/exported_program.hpp"
#include "etude/model/model.hpp"
#include "etude/model/norm_parameters.hpp"

namespace etude::inline v0 {

class Pt2Archive;

/// A model that Python's torch.export wrote, which runs and trains without Python as any torch::nn::Module;
/// `load_exported` reads it from a file. Parameters and buffers have the names that they have in Python; a
/// tied parameter is one tensor with several names. Several threads may call `forward` at the same time, as
/// long as none changes the module.
class ExportedModuleImpl : public torch::nn::Module, public HasNormParameters {
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
    std::shared_ptr<const Pt2Archive> archive = nullptr;  ///< for `save_exported`
    /// Names of tied tensors, with those that they are saved under.
    TiedNames tied = {};
    /// The tensors of an adapter of PEFT, by their names in adapter_model.safetensors.
    std::map<std::string, std::string> adapter = {};
  };

  /// Throws CheckpointError if a tensor is missing or its name can't be registered.
  explicit ExportedModuleImpl(Content content);

  /// The outputs, by the names that they have in Python if they have any. Inputs are taken by name, or by
  /// position if they have no names and there is one for each input, or one for the only input that isn't a
  /// label. Outputs that need an input that isn't given, such as the loss without labels, are left out.
  /// Throws DataError for an input that the model doesn't take, sizes that it wasn't exported for, and if no
  /// output can be computed; Error for an operator that can't follow the mode of the module.
  Tensors forward(const Tensors& inputs);

  /// A tensor that `forward` takes.
  struct Input {
    std::string name;
    torch::ScalarType dtype;
    std::vector<std::int64_t> sizes;  ///< -1 for one that varies
    bool is_label;                    ///< by its name: only the loss needs it
  };
  /// Its inputs, in their order in Python.
  std::vector<Input> inputs() const;
  std::vector<std::string> input_names() const;

  /// Text files that belong to the model, such as config.json, by name.
  const ModelFiles& files() const { return files_; }

  /// Names of tied tensors that aren't saved, with those that are: as `save_pretrained` of transformers does
  /// it, if `tools/export.py` wrote the file.
  const TiedNames& tied_names() const { return tied_; }

  /// adapter_model.safetensors, if the model has an adapter of PEFT.
  TensorFiles tensor_files() const;

  /// The labels that its own loss is a mean over, if `tools/export.py` found them.
  LossItems loss_items() const { return loss_items_; }

  /// The weights and biases that the graph gives to operators of normalization.
  std::vector<torch::Tensor> norm_parameters() const override;

  /// Writes a `.pt2` file with the graphs of the one that it was loaded from and the weights of now, in the
  /// dtypes of that file, for Python's torch.export.load and `load_exported`. A file of that name is replaced
  /// when the new one is whole. Throws CheckpointError for a file of torch 2.8, whose tensors are pickled,
  /// and if the file can't be written.
  void save_exported(const std::filesystem::path& path) const;

  /// A copy with weights of its own, without gradients, on its device or the given one.
  std::shared_ptr<torch::nn::Module> clone(
      const libtorch::Optional<torch::Device>& device = {}) const override;

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
  std::shared_ptr<const Pt2Archive> archive_;
  std::map<std::string, torch::Tensor> tensors_;  // parameters and buffers
  TiedNames tied_;
  std::map<std::string, std::string> adapter_;  // names of tensors by those in the adapter's file
  std::vector<torch::Tensor> constants_;        // tensors that aren't registered
  Bound training_;
  std::unique_ptr<Bound> evaluation_;  // null if `training_` serves both modes
  std::mutex mutex_;
};

/// The holder of an ExportedModuleImpl, as TORCH_MODULE makes it, which is called with tensors in their
/// places, `model(ids, mask)`, or by their names, `model({{"input_ids", ids}, {"attention_mask", mask}})`.
/// The result is a torch::Tensor where the model has one output, or has them by name or position.
class ExportedModule : public torch::nn::ModuleHolder<ExportedModuleImpl> {
 public:
  using torch::nn::ModuleHolder<ExportedModuleImpl>::ModuleHolder;
  using Impl = ExportedModuleImpl;

  /// See ExportedModuleImpl::forward.
  Tensors operator()(const Tensors& inputs) { return get()->forward(inputs); }
  template <std::same_as<torch::Tensor>... Rest>
  Tensors operator()(const torch::Tensor& first, const torch::Tensor& second, const Rest&... rest) {
    return get()->forward(Tensors(first, second, rest...));
  }
};

}  // namespace etude::inline v0
