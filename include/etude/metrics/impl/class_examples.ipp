#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {
namespace detail {

/// The class scores as [n, C] in the order of the labels, or undefined if the shapes don't match.
inline at::Tensor scores_of_classes(const at::Tensor& predictions, at::IntArrayRef labels) {
  if (predictions.dim() != static_cast<std::int64_t>(labels.size()) + 1) return {};
  const auto classes_last = predictions.sizes().slice(0, labels.size()) == labels;
  if (classes_last) return predictions.reshape({-1, predictions.size(-1)});
  if (labels.empty() || predictions.size(0) != labels[0] || predictions.sizes().slice(2) != labels.slice(1))
    return {};
  return predictions.movedim(1, -1).reshape({-1, predictions.size(1)});
}

}  // namespace detail

ETUDE_INLINE std::optional<std::int64_t> ClassExamples::num_classes() const {
  if (!scores.defined()) return std::nullopt;
  return scores.dim() == 1 ? 2 : scores.size(1);
}

ETUDE_INLINE at::Tensor ClassExamples::predicted(bool from_logits, double threshold) const {
  if (classes.defined()) return classes;
  if (scores.dim() == 2) return scores.argmax(-1);
  return scores.gt(from_logits ? std::log(threshold / (1 - threshold)) : threshold).to(torch::kLong);
}

ETUDE_INLINE at::Tensor ClassExamples::outside(const at::Tensor& taken, std::int64_t size) const {
  return labels.lt(0).logical_or(labels.ge(size)).logical_or(taken.lt(0)).logical_or(taken.ge(size));
}

ETUDE_INLINE ClassExamples class_examples(std::string_view metric, const at::Tensor& predictions,
                                          const at::Tensor& labels,
                                          std::optional<std::int64_t> ignore_index) {
  const auto refuse = [&] {
    throw DataError(
        fmt::format("{}: predictions are {} and labels {}: must be scores with one dimension more than the "
                    "labels, or scores of class 1 or classes of their shape",
                    metric, describe(predictions), describe(labels)));
  };
  if (!predictions.defined() || !labels.defined()) refuse();
  ClassExamples result;
  if (predictions.sizes() == labels.sizes()) {
    const auto flat = predictions.detach().reshape({-1});
    if (flat.is_floating_point())
      result.scores = flat;
    else
      result.classes = flat.to(torch::kLong);
  } else {
    result.scores = detail::scores_of_classes(predictions.detach(), labels.sizes());
    if (!result.scores.defined() || !result.scores.is_floating_point() || result.scores.size(1) == 0)
      refuse();
    if (result.scores.size(1) == 1) result.scores = result.scores.squeeze(1);
  }
  if (result.scores.defined() &&
      (result.scores.scalar_type() == torch::kHalf || result.scores.scalar_type() == torch::kBFloat16))
    result.scores = result.scores.to(torch::kFloat);
  const auto given = labels.detach().reshape({-1}).to(predictions.device());
  result.labels = given.to(torch::kLong);
  if (given.is_floating_point()) result.labels = result.labels.masked_fill(given.ne(result.labels), -1);
  result.counted = ignore_index ? result.labels.ne(*ignore_index) : torch::ones_like(given, torch::kBool);
  return result;
}

ETUDE_INLINE at::Tensor counts(const at::Tensor& index, const at::Tensor& weight, std::int64_t size) {
  return torch::zeros({size}, weight.options()).index_add(0, index, weight);
}

ETUDE_INLINE std::int64_t agreed_classes(std::string_view metric, std::optional<std::int64_t> option,
                                         std::optional<std::int64_t> seen) {
  if (option && seen && *option != *seen)
    throw DataError(fmt::format("{}: predictions are scores of {} classes: must be num_classes, {}", metric,
                                *seen, *option));
  if (!option && !seen)
    throw ArgumentError(
        fmt::format("num_classes of {} is not set: it is required if predictions are classes", metric));
  return option ? *option : *seen;
}

ETUDE_INLINE void refuse_outside(std::string_view metric, std::int64_t outside) {
  if (outside != 0)
    throw DataError(fmt::format(
        "{}: {} examples have a label or a predicted class outside the range of classes", metric, outside));
}

}  // namespace etude::inline v0::metrics
