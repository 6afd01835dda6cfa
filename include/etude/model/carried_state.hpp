#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <iosfwd>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// Tensors that a model carries from batch to batch, by name.
using CarriedTensors = std::map<std::string, torch::Tensor>;

/// The module that CarriedState holds.
class CarriedStateImpl : public torch::nn::Cloneable<CarriedStateImpl> {
 public:
  /// The tensor that the previous batch stored under this name, in the dtype and on the device of `options`,
  /// or zeros of these sizes if there is none. Don't write to it. Throws DataError if its sizes differ: this
  /// batch has a different number of rows than the previous one.
  torch::Tensor get(const std::string& name, at::IntArrayRef sizes, torch::TensorOptions options = {}) const;

  /// Keeps the values of a tensor for the next batch, without its graph: backward stops at the window's edge.
  /// Don't write to the tensor afterwards.
  void set(const std::string& name, const torch::Tensor& tensor) { tensors_[name] = tensor.detach(); }

  /// Drops all tensors: the next batch begins with zeros.
  void reset() override { tensors_.clear(); }

  const CarriedTensors& tensors() const { return tensors_; }

  void pretty_print(std::ostream& stream) const override;

 private:
  CarriedTensors tensors_;
};

/// State that a model carries from one batch to the next, such as the hidden state of a recurrent network in
/// truncated backpropagation through time:
///
///     etude::CarriedState hidden = register_module("hidden", etude::CarriedState());
///     ...
///     const auto before = hidden->get("h", {layers, x.size(1), width}, x.options());
///     const auto [y, after] = gru(x, before);
///     hidden->set("h", after);
///
/// A Trainer resets the state at the beginning of each epoch and of each dataset that it evaluates or
/// predicts, restores it after an evaluation, and saves each process's rows in checkpoints. It isn't a
/// parameter or a buffer, so weight files don't contain it, and a clone of the model begins with zeros.
class CarriedState : public torch::nn::ModuleHolder<CarriedStateImpl> {
 public:
  using torch::nn::ModuleHolder<CarriedStateImpl>::ModuleHolder;
};

/// All carried state of a model.
class CarriedStates {
 public:
  CarriedStates() = default;
  /// Finds the CarriedState modules of a model; TorchScript has none.
  explicit CarriedStates(const Model& model);

  bool empty() const { return states_.empty(); }
  /// The names of the modules.
  std::vector<std::string> names() const;

  /// All tensors, each named "MODULE.NAME". They aren't copies, but later batches replace them rather than
  /// change them.
  CarriedTensors tensors() const;
  /// Replaces all carried tensors with these. Returns the names of tensors whose module doesn't exist.
  std::vector<std::string> load(const CarriedTensors& tensors) const;
  void reset() const { load({}); }

 private:
  std::vector<std::pair<std::string, std::shared_ptr<CarriedStateImpl>>> states_;
};

}  // namespace etude::inline v0
