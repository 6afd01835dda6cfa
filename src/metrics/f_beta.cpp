#include "etude/metrics/f_beta.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include "etude/base/error.hpp"
#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {

ClassCounts::ClassCounts(ClassMetricOptions options, std::string name, double precision, double recall)
    : options_(std::move(options)), precision_(precision), recall_(recall) {
  if (options_.name.empty()) options_.name = std::move(name);
}

void ClassCounts::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  const auto classes = agreed_classes(options_.name, options_.num_classes, examples.num_classes());
  const auto predicted = examples.predicted(options_.from_logits, options_.threshold);
  const auto outside = examples.outside(classes);
  const auto weight = examples.counted.to(torch::kLong);
  const auto of = [&](const at::Tensor& index, const at::Tensor& each) {
    return counts(index.masked_fill(outside.logical_or(index.lt(0)), classes), each,
                  classes + 1);  // the last index collects values out of range and missing predictions
  };
  sum("counts", torch::stack({of(examples.labels, weight * predicted.eq(examples.labels)),
                              of(predicted, weight), of(examples.labels, weight)}));
}

Metrics ClassCounts::compute() const {
  const auto found = value("counts");
  if (!found.defined()) return {{options_.name, 0}};
  const auto all = found.cpu();
  const auto classes = all.size(1) - 1;
  refuse_outside(options_.name, all[2][classes].item<std::int64_t>());
  const auto inside = all.narrow(1, 0, classes).to(torch::kDouble);
  const auto ratio = [&](const at::Tensor& each) {
    const auto whole = precision_ * each[1] + recall_ * each[2];
    return ((precision_ + recall_) * each[0] / whole).masked_fill(whole.eq(0), 0);
  };
  const auto average = resolved(options_.average, classes);
  if (average == Average::micro) return {{options_.name, ratio(inside.sum(1)).item<double>()}};
  return averaged(options_.name, average, ratio(inside), inside[2], inside[1].add(inside[2]).gt(0), 0);
}

FBeta::FBeta(double beta, ClassMetricOptions options)
    : ClassCounts(std::move(options), "fbeta", 1, beta * beta) {
  if (!(beta >= 0)) throw ArgumentError(fmt::format("beta is {}: must be at least 0", beta));
}

}  // namespace etude::inline v0::metrics
