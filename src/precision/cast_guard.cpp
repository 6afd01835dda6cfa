#include "etude/precision/cast_guard.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/functional/instancenorm.h>  // LibTorch 1.13's next header needs it
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/types.h>

#include <cstddef>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

CastGuard::CastGuard(const Model& model, torch::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  std::unordered_set<const void*> seen;  // a tied parameter has several names
  auto models = model.modules();         // the model's list of tensors may leave some of them out
  models.push_back(model);
  for (const auto& each : models)
    for (const auto& tensors : {each.named_parameters(), each.named_buffers()})
      for (const auto& [name, tensor] : tensors)
        if (tensor.is_floating_point() && seen.insert(tensor.unsafeGetTensorImpl()).second)
          originals_.emplace_back(tensor, tensor.variable_data());
  std::vector<torch::Tensor> copies;  // made before any tensor is replaced, since memory may run out
  for (const auto& [tensor, original] : originals_) copies.push_back(original.to(dtype));
  for (std::size_t i = 0; i < copies.size(); ++i) originals_[i].first.set_data(copies[i]);
}

CastGuard::~CastGuard() {
  for (auto& [tensor, original] : originals_) tensor.set_data(original);
}

namespace detail {

namespace {

template <class... Norms>
bool is_any_of(const torch::nn::Module& module) {
  return (dynamic_cast<const Norms*>(&module) || ...);
}

/// The parameters and buffers of all batch and instance norms.
std::unordered_set<const void*> tensors_of_norms(const Model& model) {
  std::unordered_set<const void*> found;
  if (const auto module = model.module()) {
    using namespace torch::nn;
    for (const auto& part : module->modules()) {
      if (!is_any_of<BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl,
                     InstanceNorm2dImpl, InstanceNorm3dImpl>(*part))
        continue;
      for (const auto& tensors : {part->parameters(), part->buffers()})
        for (const auto& tensor : tensors) found.insert(tensor.unsafeGetTensorImpl());
    }
    return found;
  }
  for (const auto& part : model.as<torch::jit::Module>().modules()) {
    const auto name = part.type()->name()->qualifiedName();
    if (name.find(".batchnorm.") == name.npos && name.find(".instancenorm.") == name.npos) continue;
    for (const auto& tensor : part.parameters()) found.insert(tensor.unsafeGetTensorImpl());
    for (const auto& tensor : part.buffers()) found.insert(tensor.unsafeGetTensorImpl());
  }
  return found;
}

}  // namespace

}  // namespace detail

void cast_weights(const Model& model, torch::ScalarType dtype) {
  const torch::NoGradGuard no_grad;
  const auto kept = detail::tensors_of_norms(model);
  for (const auto& tensors : {model.named_parameters(), model.named_buffers()}) {
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.is_floating_point() || tensor.scalar_type() == dtype) continue;
      if (kept.contains(tensor.unsafeGetTensorImpl())) continue;
      tensor.mutable_grad().reset();
      tensor.set_data(tensor.variable_data().to(dtype));
    }
  }
  for (const auto& part : model.modules()) cast_weights(part, dtype);
}

Batch with_inputs_as(Batch batch, torch::ScalarType dtype) {
  batch.inputs = batch.inputs.transform(
      [dtype](const torch::Tensor& input) { return input.is_floating_point() ? input.to(dtype) : input; });
  return batch;
}

}  // namespace etude::inline v0
