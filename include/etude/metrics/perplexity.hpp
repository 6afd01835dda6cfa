#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

struct PerplexityOptions {
  bool from_logits = true;                          ///< Scores are logits, not probabilities.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = "perplexity";
};

/// {"perplexity"}: the exponential of the labels' mean negative log-likelihood, over all tokens rather than
/// batches; NaN without labels. Predictions are scores [N, ..., C] or [N, C, ...], labels [N, ...].
class Perplexity : public MeanAccumulator {
 public:
  explicit Perplexity(PerplexityOptions options = {}) : options_(std::move(options)) {}

  /// Throws DataError for other shapes.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Throws DataError if a label is outside 0..C-1.
  Metrics compute() const;
  void merge(const Perplexity& other) { merge_state(other); }

 private:
  PerplexityOptions options_;
};

}  // namespace etude::inline v0::metrics
