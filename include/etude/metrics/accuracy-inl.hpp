#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include "etude/data/tensors.hpp"
#include "etude/error.hpp"
#include "etude/linkage.hpp"
#include "etude/metrics/accuracy.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::metrics {

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

}  // namespace etude::metrics
