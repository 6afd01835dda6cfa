#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {
namespace detail {

/// A TorchScript module as a torch::nn::Module: the same parameters, buffers and children, by the same names.
class ScriptPart : public torch::nn::Module {
 public:
  explicit ScriptPart(torch::jit::Module script);

  /// Sets the mode of the TorchScript module too.
  void train(bool on = true) override;

 protected:
  torch::jit::Module script_;
};

}  // namespace detail

/// A TorchScript module as a part of a torch::nn::Module: `register_module("backbone",
/// etude::ScriptModule(torch::jit::load(path)))`. Its parameters and buffers are registered under their own
/// dotted names and are the tensors of the TorchScript module, so that they are trained, frozen, moved and
/// saved with those around them, and each of its modules follows the mode of the whole. It begins in the mode
/// that it was saved in. Tensors that are constants of the graph, as those of a frozen TorchScript module,
/// stay as they are.
class ScriptModuleImpl : public detail::ScriptPart {
 public:
  /// Throws ArgumentError for a module without a forward method.
  explicit ScriptModuleImpl(torch::jit::Module script);

  /// The outputs, by name if they are a dictionary of them. Inputs are taken by position.
  Tensors forward(const Tensors& inputs);

  /// The module itself, for its other methods; it shares all tensors.
  const torch::jit::Module& script() const { return script_; }
};

TORCH_MODULE(ScriptModule);

}  // namespace etude::inline v0
