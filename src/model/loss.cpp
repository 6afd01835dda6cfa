#include "etude/model/loss.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/model/forward.hpp"
#include "etude/model/model.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

std::int64_t count_items(const Tensors& labels) {
  if (labels.empty()) return 0;
  const auto& first = labels[0];
  const bool may_be_ignored =
      c10::isIntegralType(first.scalar_type(), false) && first.scalar_type() != torch::kByte;
  return may_be_ignored ? first.ne(-100).sum().item<std::int64_t>() : first.numel();
}

LossDivisor Loss::divisor(const Tensors& labels) const {
  auto weights = class_weights_of(*module_);
  const auto device = labels[labels.size() - 1].device();
  if (weights.defined() && weights.device() != device) {
    auto& [original, copy, version] = weights_;
    if (!original.is_same(weights) || version != weights._version() || copy.device() != device)
      weights_ = {weights, weights.to(device), weights._version()};
    weights = copy;
  }
  return divisor_of(*module_, labels, weights);
}

}  // namespace etude::inline v0

namespace etude::inline v0 {
namespace detail {

namespace {

/// Returns advice on how to reshape `target` if it differs from `wanted` only by a dimension of size 1;
/// otherwise an empty text.
std::string_view reshaping(c10::IntArrayRef target, c10::IntArrayRef wanted) {
  const auto ends_with_one_more = [](c10::IntArrayRef longer, c10::IntArrayRef shorter) {
    return longer.size() == shorter.size() + 1 && longer.back() == 1 &&
           longer.slice(0, shorter.size()) == shorter;
  };
  if (ends_with_one_more(target, wanted)) return "; take the last dimension off with .squeeze(-1)";
  if (ends_with_one_more(wanted, target)) return "; give the labels another dimension with .unsqueeze(-1)";
  return "";
}

/// Checks class indices for scores [examples, classes, ...].
void check_classes(std::string_view name, const torch::Tensor& output, const torch::Tensor& target) {
  const bool takes_shares = name == "CrossEntropyLoss" && target.sizes() == output.sizes();
  const bool are_numbers = target.scalar_type() == torch::kLong || target.scalar_type() == torch::kByte;
  if (output.dim() < 2 || (takes_shares && target.is_floating_point())) return;
  const auto scores = output.sizes();
  if (are_numbers && target.dim() == output.dim() - 1 && target.size(0) == scores[0] &&
      target.sizes().slice(1) == scores.slice(2))
    return;
  auto expected = scores.vec();
  expected.erase(expected.begin() + 1);
  throw DataError(fmt::format("{} needs class indices as labels: int64 [{}] for the output {}, not {}{}",
                              name, fmt::join(expected, ", "), describe(output), describe(target),
                              !are_numbers ? "; convert them with .to(torch::kLong)"
                              : target.sizes() == output.sizes()
                                  ? "; convert one-hot labels to class indices with .argmax(1)"
                                  : reshaping(target.sizes(), expected)));
}

/// Checks targets that are compared with the outputs elementwise.
void check_numbers(std::string_view name, const torch::Tensor& output, const torch::Tensor& target) {
  const bool is_wider = target.scalar_type() == torch::kDouble && output.scalar_type() != torch::kDouble;
  if (target.is_floating_point() && !is_wider) return;
  throw DataError(
      fmt::format("{} needs labels of the same type as its output: {}, not {}; convert them with "
                  ".to(torch::{})",
                  name, describe(output), describe(target),
                  output.scalar_type() == torch::kDouble ? "kDouble" : "kFloat"));
}

}  // namespace

void check_operands(std::string_view name, const Tensors& outputs, const Tensors& labels) {
  if (outputs.size() != 1 || labels.size() != 1) return;
  const torch::Tensor &output = outputs[0], &target = labels[0];
  if (!output.is_floating_point()) return;
  if (name == "CrossEntropyLoss" || name == "NLLLoss") return check_classes(name, output, target);
  constexpr std::array<std::string_view, 6> elementwise{"MSELoss",   "L1Loss",  "SmoothL1Loss",
                                                        "HuberLoss", "BCELoss", "BCEWithLogitsLoss"};
  if (std::ranges::find(elementwise, name) != elementwise.end()) check_numbers(name, output, target);
  if (!target.is_floating_point() || output.sizes() == target.sizes()) return;
  throw DataError(
      fmt::format("the output {} and the target {} of a loss must have the same shape, since LibTorch would "
                  "broadcast them{}",
                  describe(output), describe(target), reshaping(target.sizes(), output.sizes())));
}

torch::Tensor scalar_loss(const torch::Tensor& loss) {
  if (loss.defined() && loss.numel() == 1) return loss.dim() == 0 ? loss : loss.reshape({});
  throw DataError(fmt::format("the loss is {}: must be one element{}", describe(loss),
                              loss.defined() ? "; reduce it (mean or sum)" : ""));
}

void throw_not_one_operand(const Tensors& tensors, std::string_view what) {
  throw DataError(
      fmt::format("the loss compares one output with one target, but there are {} {}: {}; a loss that takes "
                  "(const etude::Tensors&, const etude::Tensors&) gets all of them",
                  tensors.size(), what, describe(tensors)));
}

}  // namespace detail

}  // namespace etude::inline v0
