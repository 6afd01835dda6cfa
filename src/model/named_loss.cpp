#include "etude/model/named_loss.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/functional/loss.h>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

namespace {

namespace functional = torch::nn::functional;

/// Converts labels for a regression loss: to the output's dtype, and to its shape if they differ only in
/// dimensions of size 1.
torch::Tensor like_output(const torch::Tensor& labels, const torch::Tensor& output) {
  const auto alike = labels.to(output.scalar_type());
  if (labels.dim() != output.dim() && labels.squeeze().sizes() == output.squeeze().sizes())
    return alike.view_as(output);
  return alike;
}

template <class Function>
Loss loss_of_numbers(Function function) {
  return [function](const Tensors& outputs, const torch::Tensor& labels) {
    const auto target = like_output(labels, outputs[0]);
    if (target.sizes() != outputs[0].sizes())
      throw DataError(fmt::format("the output is {}, but the labels are {}: must have the same shape",
                                  describe(outputs[0]), describe(labels)));
    return function(outputs[0], target);
  };
}

torch::Tensor cross_entropy(const Tensors& outputs, const torch::Tensor& labels, double items) {
  const auto& scores = outputs[0];
  if (scores.dim() < 2 ||
      (labels.is_floating_point() ? labels.sizes() != scores.sizes() : labels.dim() + 1 != scores.dim()))
    throw DataError(
        fmt::format("the output is {}, but the labels are {}: cross_entropy takes scores [N, ..., classes] "
                    "and int64 classes [N, ...], or probabilities like the scores",
                    describe(scores), describe(labels)));
  const auto rows = scores.reshape({-1, scores.size(-1)});
  const auto targets =
      labels.is_floating_point() ? labels.reshape_as(rows) : labels.to(torch::kLong).reshape(-1);
  const auto options = functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  return functional::cross_entropy(rows, targets, options) / items;
}

}  // namespace

bool takes_numbers(LossName loss) { return loss != LossName::model && loss != LossName::cross_entropy; }

Loss named_loss(LossName loss) {
  switch (loss) {
    case LossName::model:
      return {};
    case LossName::cross_entropy:
      return cross_entropy;
    case LossName::bce_with_logits:
      return loss_of_numbers(
          [](const auto& a, const auto& b) { return functional::binary_cross_entropy_with_logits(a, b); });
    case LossName::mse:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::mse_loss(a, b); });
    case LossName::l1:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::l1_loss(a, b); });
    case LossName::huber:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::huber_loss(a, b); });
    case LossName::smooth_l1:
      return loss_of_numbers([](const auto& a, const auto& b) { return functional::smooth_l1_loss(a, b); });
  }
  return {};
}

void check_loss(LossName loss, const std::vector<std::string>& inputs, bool takes_labels) {
  if (loss != LossName::model || takes_labels) return;
  throw ArgumentError(
      fmt::format("loss is model, but the model takes no labels (it takes {}): must be one of cross_entropy, "
                  "bce_with_logits, mse, l1, huber, smooth_l1",
                  fmt::join(inputs, ", ")));
}

}  // namespace etude::inline v0
