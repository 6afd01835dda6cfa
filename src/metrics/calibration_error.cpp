#include "etude/metrics/calibration_error.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {

CalibrationError::CalibrationError(CalibrationErrorOptions options) : options_(std::move(options)) {
  if (options_.bins < 1) throw ArgumentError(fmt::format("bins is {}: must be at least 1", options_.bins));
}

void CalibrationError::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  const auto& scores = examples.scores;
  if (!scores.defined())
    throw DataError(fmt::format("{}: predictions are {} and labels {}: must be scores, not classes",
                                options_.name, describe(predictions), describe(labels)));
  at::Tensor confidence, right;
  if (scores.dim() == 1) {
    confidence = options_.from_logits ? scores.sigmoid() : scores;
    right = examples.labels.eq(1);
  } else {
    confidence = (options_.from_logits ? scores.softmax(1) : scores).amax(1);
    right = examples.predicted().eq(examples.labels);
  }
  const auto edges = torch::linspace(0, 1, options_.bins + 1, confidence.options());
  const auto bin = (torch::bucketize(confidence, edges, false, true) - 1).clamp(0, options_.bins);
  const auto type = scores.is_mps() ? torch::kFloat : torch::kDouble;
  const auto left_out = examples.counted.logical_not();
  const auto in_bins = [&](const at::Tensor& each) {
    const auto numbers = each.to(type).masked_fill(left_out, 0);
    return torch::zeros({options_.bins + 1}, numbers.options()).index_add(0, bin, numbers);
  };
  sum("examples_confidence_right_outside",
      torch::stack({in_bins(examples.counted), in_bins(confidence), in_bins(right),
                    in_bins(examples.outside(*examples.num_classes()))}));
}

Metrics CalibrationError::compute() const {
  const auto found = value("examples_confidence_right_outside");
  if (!found.defined()) return {{options_.name, std::numeric_limits<double>::quiet_NaN()}};
  const auto all = found.cpu().to(torch::kDouble);
  refuse_outside(options_.name, all[3].sum().item<std::int64_t>());
  const auto share = all[0] / all[0].sum();
  const auto gap = ((all[1] - all[2]) / all[0].clamp_min(1)).abs();
  switch (options_.norm) {
    case CalibrationNorm::l1:
      return {{options_.name, (gap * share).sum().item<double>()}};
    case CalibrationNorm::l2:
      return {{options_.name, std::sqrt((gap.square() * share).sum().item<double>())}};
    case CalibrationNorm::max:
      break;
  }
  return {{options_.name, (share * 0 + gap).max().item<double>()}};  // NaN if there are no examples
}

}  // namespace etude::inline v0::metrics
