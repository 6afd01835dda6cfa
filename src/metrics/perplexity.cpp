#include "etude/metrics/perplexity.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {

void Perplexity::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  if (!examples.scores.defined() || examples.scores.dim() != 2)
    throw DataError(fmt::format("{}: predictions are {} and labels {}: must be scores of several classes",
                                options_.name, describe(predictions), describe(labels)));
  const auto outside = examples.outside(examples.scores.size(1));
  const auto scores =
      examples.scores.gather(1, examples.labels.masked_fill(outside, 0).unsqueeze(1)).squeeze(1);
  const auto likelihood = options_.from_logits ? scores - examples.scores.logsumexp(1) : scores.log();
  const auto type = scores.is_mps() ? torch::kFloat : torch::kDouble;
  const auto left_out = outside.logical_or(examples.counted.logical_not());
  add_to_mean({-likelihood.to(type).masked_fill(left_out, 0).sum(), examples.counted.sum(),
               outside.logical_and(examples.counted).sum()});
}

Metrics Perplexity::compute() const { return {{options_.name, std::exp(mean(options_.name))}}; }

}  // namespace etude::inline v0::metrics
