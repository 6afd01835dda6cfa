#include "etude/metrics/mean_squared_error.hpp"

#include <torch/types.h>

#include <limits>
#include <utility>

namespace etude::inline v0::metrics {

MeanSquaredError::MeanSquaredError(RegressionOptions options) : options_(std::move(options)) {
  if (options_.name.empty()) options_.name = "mse";
}

void MeanSquaredError::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = regression_examples(options_.name, predictions, labels, options_.ignore_index);
  sum("error_of_counted", torch::stack({examples.errors.square().sum(),
                                        examples.counted.sum().to(examples.errors.scalar_type())}));
}

Metrics MeanSquaredError::compute() const {
  const auto found = value("error_of_counted");
  if (!found.defined()) return {{options_.name, std::numeric_limits<double>::quiet_NaN()}};
  const auto both = found.cpu();
  return {{options_.name, both[0].item<double>() / both[1].item<double>()}};
}

}  // namespace etude::inline v0::metrics
