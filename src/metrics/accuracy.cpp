#include "etude/metrics/accuracy.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/class_examples.hpp"
#include "etude/metrics/streaming.hpp"

namespace etude::inline v0::metrics {

Metrics accuracy(const EvalPrediction& p) { return streaming(Accuracy())(p); }

Accuracy::Accuracy(AccuracyOptions options) : options_(std::move(options)) {
  if (options_.top_k < 1) throw ArgumentError(fmt::format("top_k is {}: must be at least 1", options_.top_k));
  if (options_.name.empty())
    options_.name = options_.top_k == 1 ? "accuracy" : fmt::format("top_{}_accuracy", options_.top_k);
}

void Accuracy::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  at::Tensor right;
  if (options_.top_k == 1) {
    right = examples.predicted(options_.from_logits, options_.threshold).eq(examples.labels);
  } else {
    if (!examples.scores.defined() || examples.scores.dim() != 2)
      throw DataError(fmt::format("{}: predictions are {} and labels {}: must be scores of several classes",
                                  options_.name, describe(predictions), describe(labels)));
    const auto size = examples.scores.size(1);
    const auto label = examples.labels.clamp(0, size - 1).unsqueeze(1);
    const auto score = examples.scores.gather(1, label);
    const auto earlier = torch::arange(size, label.options()).lt(label);
    const auto before = examples.scores.gt(score).logical_or(examples.scores.eq(score).logical_and(earlier));
    right = before.sum(1).lt(options_.top_k).logical_and(examples.predicted().ge(0));
  }
  const auto classes = examples.num_classes();
  const auto outside = classes ? examples.outside(*classes) : torch::zeros_like(right);
  const auto number = [&](const at::Tensor& each) { return each.logical_and(examples.counted).sum(); };
  add_to_mean({number(right), examples.counted.sum(), number(outside)});
}

}  // namespace etude::inline v0::metrics
