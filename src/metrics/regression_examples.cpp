#include "etude/metrics/regression_examples.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <utility>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0::metrics {

RegressionExamples regression_examples(std::string_view metric, const at::Tensor& predictions,
                                       const at::Tensor& labels, std::optional<std::int64_t> ignore_index) {
  const auto is_column_of = [](const at::Tensor& column, const at::Tensor& flat) {
    return column.dim() == flat.dim() + 1 && column.size(-1) == 1 &&
           column.sizes().slice(0, static_cast<std::size_t>(flat.dim())) == flat.sizes();
  };
  if (!predictions.defined() || !labels.defined() ||
      (predictions.sizes() != labels.sizes() && !is_column_of(predictions, labels) &&
       !is_column_of(labels, predictions)))
    throw DataError(fmt::format("{}: predictions are {} and labels {}: must have the same shape", metric,
                                describe(predictions), describe(labels)));
  const auto rows = labels.dim() == 0 ? 1 : labels.size(0);
  const auto outputs = rows == 0 ? 1 : labels.numel() / rows;
  const auto type = predictions.is_mps() ? torch::kFloat : torch::kDouble;
  const auto flat = [&](const at::Tensor& tensor) {
    return tensor.detach().reshape({rows, outputs}).to(predictions.device(), type);
  };
  const auto given = flat(labels);
  const auto ignored =
      ignore_index ? given.eq(static_cast<double>(*ignore_index)) : torch::zeros_like(given, torch::kBool);
  return {given.masked_fill(ignored, 0), (flat(predictions) - given).masked_fill(ignored, 0),
          ignored.logical_not()};
}

MeanError::MeanError(RegressionOptions options, std::string name, double power)
    : options_(std::move(options)), power_(power) {
  if (options_.name.empty()) options_.name = std::move(name);
}

void MeanError::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = regression_examples(options_.name, predictions, labels, options_.ignore_index);
  add_to_mean({examples.errors.abs().pow(power_).sum(), examples.counted.sum()});
}

}  // namespace etude::inline v0::metrics
