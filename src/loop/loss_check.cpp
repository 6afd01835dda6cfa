#include "etude/loop/loss_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/model/loss.hpp"

namespace etude::inline v0 {

LossCheck::LossCheck(const TrainerOptions& options, const TrainingArguments& args, const Model& model,
                     const OptimizerList& optimizers)
    : options_(options), args_(args), model_(model), optimizers_(optimizers) {}

void check_training_loss(const torch::Tensor& loss) {
  if (!detail::scalar_loss(loss).requires_grad())
    throw DataError("the loss depends on no parameter that is trained: all are frozen, or it was detached");
}

namespace detail {

namespace {

/// The tensors in which `loss` would leave gradients.
std::vector<torch::Tensor> leaves_of(const torch::Tensor& loss) {
  std::vector<torch::Tensor> leaves;
  std::vector<torch::autograd::Node*> open{loss.grad_fn().get()};
  std::unordered_set<torch::autograd::Node*> seen{nullptr, open.front()};
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    if (node == nullptr) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.push_back(leaf->variable);
    for (const auto& edge : node->next_edges())
      if (seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  }
  return leaves;
}

}  // namespace

}  // namespace detail

void LossCheck::before_backward(const torch::Tensor& loss, const Batch& batch) {
  check_training_loss(loss);
  if (checked_leaves_) return;
  std::unordered_set<const void*> known;
  const auto add = [&](const torch::Tensor& tensor) { known.insert(tensor.unsafeGetTensorImpl()); };
  std::ranges::for_each(model_.parameters(), add);
  std::ranges::for_each(batch.inputs, add);
  std::ranges::for_each(batch.labels, add);
  for (const auto& [name, buffer] : model_.named_buffers()) add(buffer);
  if (const auto& module = options_.loss.module()) std::ranges::for_each(module->parameters(), add);
  for (const auto& each : optimizers_)
    for (const auto& group : each.optimizer->param_groups())
      for (const auto& [name, parameter] : group.parameters) add(parameter);
  auto strangers = detail::leaves_of(loss);
  std::erase_if(strangers, [&](const auto& leaf) { return known.contains(leaf.unsafeGetTensorImpl()); });
  const auto before = std::exchange(untrained_leaves_, strangers);
  checked_leaves_ = before || strangers.empty();
  if (!checked_leaves_) return;
  untrained_leaves_.reset();
  std::vector<std::string> layers;
  for (const auto& leaf : strangers)
    if (std::ranges::any_of(*before, [&](const auto& other) { return other.is_same(leaf); }))
      layers.push_back(describe(leaf));
  if (layers.empty()) return;
  const auto shown = std::min<std::size_t>(layers.size(), 4);
  message(args_, LogLevel::warning,
          "the loss depends on tensors that require gradients but aren't trained: {}{}; a layer is "
          "trained once it is given to register_module, a parameter to register_parameter",
          fmt::join(std::span(layers).first(shown), ", "),
          shown < layers.size() ? fmt::format(" and {} more", layers.size() - shown) : "");
}

torch::Tensor LossCheck::after_step(torch::Tensor loss) {
  if (!loss.defined()) throw DataError("training_step returned no loss");
  if (!loss.requires_grad()) return loss;
  // Checks only once, because this waits for the device, and later gradients may all be zero.
  if (checked_backward_) return loss.detach();
  const auto has_gradient = [](const torch::Tensor& parameter) {
    auto gradient = parameter.grad();
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient._values();
    return gradient.defined() && gradient.count_nonzero().item<std::int64_t>() > 0;
  };
  if (!std::ranges::any_of(model_.parameters(), has_gradient))
    throw DataError(
        "training_step returned a loss without calling backward on it: it must do so itself, as "
        "TrainerBase::training_step does");
  checked_backward_ = true;
  return loss.detach();
}

}  // namespace etude::inline v0
