#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {
namespace detail {

/// A TorchScript module as a torch::nn::Module with the same parameters, buffers and children, under the same
/// names.
class ScriptPart : public torch::nn::Module {
 public:
  explicit ScriptPart(torch::jit::Module script);

  /// Also sets the mode of the TorchScript module.
  void train(bool on = true) override;

 protected:
  torch::jit::Module script_;
};

}  // namespace detail

/// A TorchScript module as a part of a torch::nn::Module: `register_module("backbone",
/// etude::ScriptModule(torch::jit::load(path)))`. Its parameters and buffers keep their dotted names and
/// share the tensors of the TorchScript module, so they are trained, frozen, moved and saved with the rest of
/// the model, and each submodule follows the model's mode. It starts in the mode in which it was saved.
/// Tensors that are constants of the graph, as in a frozen TorchScript module, stay as they are.
class ScriptModuleImpl : public detail::ScriptPart {
 public:
  /// Throws ArgumentError for a module without a forward method.
  explicit ScriptModuleImpl(torch::jit::Module script);

  /// Computes the outputs, which are named if the module returns a dictionary. Inputs are taken by position.
  Tensors forward(const Tensors& inputs);

  /// The TorchScript module, for its other methods. It shares all tensors with this one.
  const torch::jit::Module& script() const { return script_; }
};

TORCH_MODULE(ScriptModule);

}  // namespace etude::inline v0
