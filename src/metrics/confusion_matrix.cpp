#include "etude/metrics/confusion_matrix.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>

#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {

void ConfusionMatrix::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  const auto classes = agreed_classes(options_.name, options_.num_classes, examples.num_classes());
  const auto predicted = examples.predicted(options_.from_logits, options_.threshold);
  const auto index = (examples.labels * classes + predicted)
                         .masked_fill(predicted.lt(0), classes * classes + 1)
                         .masked_fill(examples.outside(classes), classes * classes);
  sum("counts", counts(index, examples.counted.to(torch::kLong), classes * classes + 2));
}

at::Tensor ConfusionMatrix::matrix() const {
  const auto found = value("counts");
  if (!found.defined()) return {};
  const auto all = found.cpu();
  const auto cells = all.size(0) - 2;
  const auto classes = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(cells))));
  refuse_outside(options_.name, all[cells].item<std::int64_t>());
  refuse_unordered(options_.name, all[cells + 1].item<std::int64_t>());
  auto matrix = all.narrow(0, 0, cells).reshape({classes, classes}).to(torch::kDouble);
  if (options_.normalize == Normalization::none) return matrix;
  const auto whole = options_.normalize == Normalization::labels        ? matrix.sum(1, true)
                     : options_.normalize == Normalization::predictions ? matrix.sum(0, true)
                                                                        : matrix.sum();
  return (matrix / whole).masked_fill(whole.eq(0), 0);
}

Metrics ConfusionMatrix::compute() const {
  Metrics result;
  const auto all = matrix();
  if (!all.defined()) return result;
  for (std::int64_t label = 0; label < all.size(0); ++label)
    for (std::int64_t predicted = 0; predicted < all.size(1); ++predicted)
      result[fmt::format("{}_{}_{}", options_.name, label, predicted)] = all[label][predicted].item<double>();
  return result;
}

}  // namespace etude::inline v0::metrics
