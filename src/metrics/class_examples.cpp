#include "etude/metrics/class_examples.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0::metrics {
namespace detail {

namespace {

/// The predictions as [n, C] in the order of the labels, or undefined if the shapes don't match.
at::Tensor rows_of_predictions(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto shape = labels.sizes();
  if (predictions.sizes() == shape) return predictions.reshape({-1, 1});
  if (predictions.dim() != labels.dim() + 1) return {};
  if (predictions.sizes().slice(0, shape.size()) == shape)
    return predictions.reshape({labels.numel(), predictions.size(-1)});
  if (shape.empty() || predictions.size(0) != shape[0] || predictions.sizes().slice(2) != shape.slice(1))
    return {};
  return predictions.movedim(1, -1).reshape({labels.numel(), predictions.size(1)});
}

}  // namespace

}  // namespace detail

std::optional<std::int64_t> ClassExamples::num_classes() const {
  if (!scores.defined()) return std::nullopt;
  return scores.dim() == 1 ? 2 : scores.size(1);
}

at::Tensor ClassExamples::predicted(bool from_logits, double threshold) const {
  if (!(threshold >= 0 && threshold <= 1))
    throw ArgumentError(fmt::format("threshold is {}: must be a probability, from 0 to 1", threshold));
  if (classes.defined()) return classes;
  if (scores.dim() == 2) {
    const auto [highest, of_class] = scores.max(1);  // NaN if one of the scores is
    return of_class.masked_fill(highest.isnan(), -1);
  }
  return scores.gt(from_logits ? std::log(threshold / (1 - threshold)) : threshold)
      .to(torch::kLong)
      .masked_fill(scores.isnan(), -1);
}

at::Tensor ClassExamples::outside(std::int64_t size) const {
  const auto is_outside = [&](const at::Tensor& index) { return index.lt(0).logical_or(index.ge(size)); };
  return classes.defined() ? is_outside(labels).logical_or(is_outside(classes)) : is_outside(labels);
}

ClassExamples class_examples(std::string_view metric, const at::Tensor& predictions, const at::Tensor& labels,
                             std::optional<std::int64_t> ignore_index) {
  const auto refuse = [&] {
    throw DataError(
        fmt::format("{}: predictions are {} and labels {}: must be scores with one dimension more than the "
                    "labels, or one score of class 1, or one class index of an integer dtype, per label",
                    metric, describe(predictions), describe(labels)));
  };
  if (!predictions.defined() || !labels.defined()) refuse();
  auto rows = detail::rows_of_predictions(predictions.detach(), labels);
  if (!rows.defined() || rows.size(1) == 0) refuse();
  if (rows.size(1) == 1) rows = rows.squeeze(1);
  ClassExamples result;
  if (rows.is_floating_point())
    result.scores = rows.scalar_type() == torch::kDouble ? rows : rows.to(torch::kFloat);
  else if (rows.dim() == 1 && !rows.is_complex())
    result.classes = rows.to(torch::kLong);
  else
    refuse();
  const auto given = labels.detach().reshape({-1}).to(predictions.device());
  result.labels = given.to(torch::kLong);
  if (given.is_floating_point())
    result.labels =
        result.labels.masked_fill(given.ne(result.labels), std::numeric_limits<std::int64_t>::min());
  result.counted = ignore_index ? result.labels.ne(*ignore_index) : torch::ones_like(given, torch::kBool);
  return result;
}

at::Tensor counts(const at::Tensor& index, const at::Tensor& weight, std::int64_t size) {
  return torch::zeros({size}, weight.options()).index_add(0, index, weight);
}

std::int64_t agreed_classes(std::string_view metric, std::optional<std::int64_t> option,
                            std::optional<std::int64_t> seen) {
  if (option && seen && *option != *seen)
    throw DataError(fmt::format("{}: predictions are scores of {} classes: must be num_classes, {}", metric,
                                *seen, *option));
  if (!option && !seen)
    throw ArgumentError(
        fmt::format("num_classes of {} is not set: it is required if predictions are classes", metric));
  return option ? *option : *seen;
}

void refuse_outside(std::string_view metric, std::int64_t outside) {
  if (outside != 0)
    throw DataError(fmt::format(
        "{}: {} examples have a label or a predicted class outside the range of classes: must be a whole "
        "number from 0 to C-1, and 0 or 1 if predictions are one score per label",
        metric, outside));
}

void refuse_unordered(std::string_view metric, std::int64_t unordered) {
  if (unordered != 0)
    throw DataError(
        fmt::format("{}: {} examples have scores without an order: must not be NaN, nor +inf among the "
                    "logits of several classes",
                    metric, unordered));
}

}  // namespace etude::inline v0::metrics
