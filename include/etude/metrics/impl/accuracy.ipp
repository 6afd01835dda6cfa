#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/class_examples.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0::metrics {

ETUDE_INLINE Metrics accuracy(const EvalPrediction& p) {
  const auto& predictions = p.predictions.single();
  const auto& labels = p.label_ids.single();
  const auto without = [&](std::int64_t dimension) {
    auto shape = predictions.sizes().vec();
    shape.erase(shape.begin() + dimension);
    return shape;
  };
  torch::Tensor classes;
  if (predictions.sizes() == labels.sizes() && !predictions.is_floating_point())
    classes = predictions;
  else if (predictions.dim() == labels.dim() + 1 &&
           labels.sizes() == torch::IntArrayRef(without(labels.dim())))
    classes = predictions.argmax(-1);
  else if (predictions.dim() == labels.dim() + 1 && labels.dim() > 0 &&
           labels.sizes() == torch::IntArrayRef(without(1)))
    classes = predictions.argmax(1);
  else
    throw DataError(
        fmt::format("accuracy: predictions are {} and labels {}: must be logits with one dimension more than "
                    "the labels, or classes of their shape",
                    describe(predictions), describe(labels)));
  const auto counted = labels.ne(-100);
  const auto right = classes.eq(labels).logical_and(counted);
  return {{"accuracy", right.sum().item<double>() / counted.sum().item<double>()}};
}

ETUDE_INLINE Accuracy::Accuracy(AccuracyOptions options) : options_(std::move(options)) {
  if (options_.top_k < 1) throw ArgumentError(fmt::format("top_k is {}: must be at least 1", options_.top_k));
  if (options_.name.empty())
    options_.name = options_.top_k == 1 ? "accuracy" : fmt::format("top_{}_accuracy", options_.top_k);
}

ETUDE_INLINE void Accuracy::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  at::Tensor right;
  if (options_.top_k == 1) {
    right = examples.predicted(options_.from_logits, options_.threshold).eq(examples.labels);
  } else {
    if (!examples.scores.defined() || examples.scores.dim() != 2)
      throw DataError(fmt::format("{}: predictions are {} and labels {}: must be scores of several classes",
                                  options_.name, describe(predictions), describe(labels)));
    const auto classes = examples.scores.size(1);
    const auto label = examples.labels.clamp(0, classes - 1).unsqueeze(1);
    const auto score = examples.scores.gather(1, label);
    const auto earlier = torch::arange(classes, label.options()).lt(label);
    // Treats NaN as the highest score, but never as correct.
    const auto before =
        examples.scores.le(score).logical_not().logical_or(examples.scores.eq(score).logical_and(earlier));
    right = before.sum(1)
                .lt(options_.top_k)
                .logical_and(label.squeeze(1).eq(examples.labels))
                .logical_and(score.squeeze(1).isnan().logical_not());
  }
  sum("right_of_counted", torch::stack({right.logical_and(examples.counted).sum(), examples.counted.sum()}));
}

ETUDE_INLINE Metrics Accuracy::compute() const {
  const auto found = value("right_of_counted");
  if (!found.defined()) return {{options_.name, std::numeric_limits<double>::quiet_NaN()}};
  const auto both = found.cpu();
  return {{options_.name, both[0].item<double>() / both[1].item<double>()}};
}

}  // namespace etude::inline v0::metrics
