#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/streaming_metric.hpp"

namespace etude::metrics {

struct PerplexityOptions {
  bool from_logits = true;                          ///< Scores are logits, not probabilities.
  std::optional<std::int64_t> ignore_index = -100;  ///< The label that is left out.
  std::string name = "perplexity";
};

/// {"perplexity"}: the exponential of the mean negative log-likelihood of the labels, over all tokens and not
/// over batches; NaN where there are no labels. Predictions are scores [N, ..., C] or [N, C, ...], labels
/// [N, ...].
class Perplexity : public Accumulator {
 public:
  explicit Perplexity(PerplexityOptions options = {}) : options_(std::move(options)) {}

  /// Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Throws DataError if some label was outside of 0..C-1.
  Metrics compute() const;
  void merge(const Perplexity& other) { merge_state(other); }

 private:
  PerplexityOptions options_;
};

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/perplexity.ipp"
#endif
