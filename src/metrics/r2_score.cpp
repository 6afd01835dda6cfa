#include "etude/metrics/r2_score.hpp"

#include <torch/types.h>

#include <limits>
#include <utility>

namespace etude::inline v0::metrics {
namespace detail {

namespace {

/// Merges k rows [4, D], each with the count, mean, squared distances from the mean and squared errors of its
/// examples, into one [1, 4, D], by the parallel variance formula of Chan, Golub and LeVeque (1979).
at::Tensor joined_moments(const at::Tensor& rows) {
  const auto count = rows.select(1, 0), mean = rows.select(1, 1);
  const auto total = count.sum(0);
  // Computed relative to the first mean, so that the mean of equal labels is exact.
  const auto middle = mean[0] + (count * (mean - mean[0])).sum(0) / total.clamp_min(1);
  const auto distances = (rows.select(1, 2) + count * (mean - middle).square()).sum(0);
  return torch::stack({total, middle, distances, rows.select(1, 3).sum(0)}).unsqueeze(0);
}

}  // namespace

}  // namespace detail

R2Score::R2Score(RegressionOptions options) : options_(std::move(options)) {
  if (options_.name.empty()) options_.name = "r2";
}

void R2Score::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = regression_examples(options_.name, predictions, labels, options_.ignore_index);
  if (examples.labels.size(0) == 0) return;
  const auto count = examples.counted.sum(0).to(examples.labels.scalar_type());
  const auto from = [&](const at::Tensor& origin) {
    return (examples.labels - origin).masked_fill(examples.counted.logical_not(), 0);
  };
  const auto first = examples.labels[0];
  const auto mean = first + from(first).sum(0) / count.clamp_min(1);
  keep("moments",
       torch::stack({count, mean, from(mean).square().sum(0), examples.errors.square().sum(0)}).unsqueeze(0));
  load_state({{"moments", detail::joined_moments(value("moments")), Merging::concatenate}});
}

Metrics R2Score::compute() const {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto found = value("moments");
  if (!found.defined()) return {{options_.name, nan}};
  const auto moments = detail::joined_moments(found.cpu()).squeeze(0);
  const auto distances = moments[2], errors = moments[3];
  const auto score =
      (1 - errors / distances).masked_fill(distances.eq(0), 0).masked_fill(distances.eq(0) & errors.eq(0), 1);
  return {{options_.name, score.masked_fill(moments[0].lt(2), nan).mean().item<double>()}};
}

}  // namespace etude::inline v0::metrics
