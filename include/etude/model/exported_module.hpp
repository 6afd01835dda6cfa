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
#include "etude/model/compiled_graph.hpp"
#include "etude/model/exported_compiled.hpp"
#include "etude/model/exported_program.hpp"
#include "etude/model/model.hpp"
#include "etude/model/norm_parameters.hpp"

namespace etude::inline v0 {

class Pt2Archive;

/// A model exported by Python's torch.export, which runs and trains without Python like any
/// torch::nn::Module; `load_exported` reads it from a file. Parameters and buffers have their names from
/// Python; a tied parameter is one tensor with several names. Several threads may call `forward` at the same
/// time, as long as none changes the module.
class ExportedModuleImpl : public torch::nn::Module, public HasNormParameters, public HasCompiledGraph {
 public:
  /// The content of a file.
  struct Content {
    std::string name;  ///< the file's name, for messages
    detail::ExportedProgram training;
    std::shared_ptr<detail::ExportedProgram> evaluation;  ///< null if `training` serves both modes
    /// Parameters and buffers, including buffers that aren't part of the state dict. Several names of one
    /// tensor share it.
    std::map<std::string, torch::Tensor> tensors;
    /// Text files that belong to the model, such as config.json, by name.
    ModelFiles files;
    LossItems loss_items = LossItems::unknown;
    std::shared_ptr<const Pt2Archive> archive = nullptr;  ///< for `save_exported`
    /// Maps names of tied tensors to the names that they are saved under.
    TiedNames tied = {};
    /// The tensors of a PEFT adapter: maps their names in adapter_model.safetensors to their names in the
    /// model.
    std::map<std::string, std::string> adapter = {};
    /// Null unless the file's native code may run.
    std::shared_ptr<detail::CompiledGraphs> compiled = nullptr;
  };

  /// Throws CheckpointError if a tensor is missing or its name can't be registered.
  explicit ExportedModuleImpl(Content content);

  /// Computes the outputs, which are named as in Python if they have names there. Inputs are taken by name
  /// or, if they have no names, by position: one for each input of the model, or just one if a single input
  /// isn't a label. Outputs that need an input that isn't given, such as the loss without labels, are left
  /// out. Throws DataError for an input that the model doesn't take, for sizes that it wasn't exported for,
  /// and if no output can be computed; Error for an operator that can't follow the module's mode.
  Tensors forward(const Tensors& inputs);

  /// Runs the file's compiled graph for the module's device and this thread's autocast, and loads it first if
  /// that hasn't happened yet. The graph computes batches of the sizes and dtypes that it was compiled for,
  /// in training mode, if the same parameters are trained and frozen as then; otherwise the result says why
  /// it can't. The backward pass frees the gradients. Throws as `forward` does for inputs that the model
  /// doesn't take, an Error that begins with the model's name if the graph fails, and CheckpointError if it
  /// can't be loaded. Several threads take turns.
  Result forward_compiled(const Tensors& inputs) override;

  /// True if the program has asked for compiled graphs, whether or not the file has any.
  bool has_compiled_graph() const override { return content_.compiled != nullptr; }

  /// Loads the file's compiled graph for the module's device, if it can run here, and returns why it can't be
  /// used. Throws CheckpointError if it can't be loaded.
  std::string why_no_graph(std::optional<torch::ScalarType> autocast) override;

  /// A tensor that `forward` takes.
  struct Input {
    std::string name;
    torch::ScalarType dtype;
    std::vector<std::int64_t> sizes;  ///< -1 for a size that may vary
    bool is_label;                    ///< true if, by its name, only the loss needs it
  };
  /// The model's inputs, in their order in Python.
  std::vector<Input> inputs() const;
  std::vector<std::string> input_names() const;

  /// Text files that belong to the model, such as config.json, by name.
  const ModelFiles& files() const { return content_.files; }

  /// Maps names of tied tensors that aren't saved to the names that are, by the rule of `save_pretrained` in
  /// transformers. Known only if `tools/export.py` wrote the file.
  const TiedNames& tied_names() const { return content_.tied; }

  /// The content of adapter_model.safetensors, if the model has a PEFT adapter.
  TensorFiles tensor_files() const;

  /// The labels over which the model's loss is a mean, if `tools/export.py` could find out.
  LossItems loss_items() const { return content_.loss_items; }

  /// The weights and biases that the graph passes to normalization operators.
  std::vector<torch::Tensor> norm_parameters() const override;

  /// Writes a `.pt2` file for Python's torch.export.load and `load_exported`: the graphs of the file from
  /// which the model was loaded, with the current weights in that file's dtypes. The file is written
  /// atomically. Throws CheckpointError if the model comes from torch 2.8, whose tensors are pickled, and if
  /// the file can't be written.
  void save_exported(const std::filesystem::path& path) const;

  /// A deep copy without gradients, on the module's device or the given one.
  std::shared_ptr<torch::nn::Module> clone(
      const libtorch::Optional<torch::Device>& device = {}) const override;

  /// As in Python, the dtype changes only for floating-point tensors, including constants of the graph.
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

 private:
  /// A graph and the tensors bound to its inputs.
  struct Bound {
    detail::ExportedProgram& program;
    std::vector<std::pair<std::size_t, torch::Tensor>> tensors;  // by index of the graph's input
    std::vector<std::pair<std::size_t, torch::Tensor>> mutated;  // buffers, by index of the graph's output
    std::vector<std::vector<std::int64_t>> checked = {};  // sizes and dtypes of the last inputs that passed
    /// The graphs for batches that lack these inputs.
    std::map<std::vector<bool>, detail::ExportedGraph> partial = {};
  };

  /// The compiled graph for a device and a dtype of autocast, or why there is none.
  struct CompiledChoice {
    torch::Device device;
    std::optional<torch::ScalarType> autocast;
    detail::BoundCompiledGraph bound;
    std::string why_not;
  };

  void register_state(const detail::ExportedProgram& program);
  torch::Tensor tensor_of(const detail::ExportedProgram& program, const detail::ExportedState& state) const;
  Bound bound(detail::ExportedProgram& program) const;
  void convert(std::optional<torch::Device> device, std::optional<torch::Dtype> dtype, bool non_blocking);
  std::vector<torch::Tensor> ordered(const detail::ExportedProgram& program, const Tensors& inputs) const;
  static const detail::ExportedGraph& graph_for(Bound& bound, const std::vector<torch::Tensor>& given);
  torch::Device device() const;
  std::shared_ptr<const CompiledChoice> compiled_for(torch::Device device,
                                                     std::optional<torch::ScalarType> autocast);
  [[noreturn]] void refuse_mode(const std::string& operation, std::string_view mode) const;

  Content content_;
  std::vector<torch::Tensor> constants_;  // tensors that aren't registered
  Bound training_;
  std::optional<Bound> evaluation_;                 // unset if `training_` serves both modes
  std::shared_ptr<const CompiledChoice> compiled_;  // the last one that was used
  std::mutex mutex_;
};

/// The holder of an ExportedModuleImpl, like the holders that TORCH_MODULE makes. Call it with tensors by
/// position, `model(ids, mask)`, or by name, `model({{"input_ids", ids}, {"attention_mask", mask}})`. The
/// result converts to a torch::Tensor if the model has one output; otherwise its outputs are found by name or
/// position.
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
