#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/metrics/average.hpp"
#include "etude/metrics/streaming_metric.hpp"

namespace etude::inline v0::metrics {

/// The options of precision, recall and F.
struct ClassMetricOptions {
  Average average = Average::automatic;
  std::optional<std::int64_t> num_classes = std::nullopt;  ///< Required if predictions are class indices.
  bool from_logits = true;                                 ///< Single scores are logits, not probabilities.
  double threshold = 0.5;                           ///< Single scores with a higher probability mean class 1.
  std::optional<std::int64_t> ignore_index = -100;  ///< This label is ignored.
  std::string name = {};                            ///< Replaces the metric's name.
};

/// A weighted harmonic mean of precision and recall, averaged over the classes: weights 1 and 0 give the
/// precision alone. An example with a NaN among its scores has a label but no prediction. Predictions are
/// scores [N, ..., C] or [N, C, ...], one score of class 1 per label, or class indices; labels [N, ...].
class ClassCounts : public Accumulator {
 public:
  /// Throws DataError for other shapes, and ArgumentError if `num_classes` is required.
  void update(const at::Tensor& predictions, const at::Tensor& labels);
  /// Throws DataError if a label or class is outside 0..C-1.
  Metrics compute() const;

 protected:
  ClassCounts(ClassMetricOptions options, std::string name, double precision, double recall);

 private:
  ClassMetricOptions options_;
  double precision_, recall_;
};

/// {"precision"}: the fraction of a class's predictions that are correct; 0 without predictions.
class Precision : public ClassCounts {
 public:
  explicit Precision(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "precision", 1, 0) {}
  void merge(const Precision& other) { merge_state(other); }
};

/// {"recall"}: the fraction of a class's labels that were predicted; 0 without labels.
class Recall : public ClassCounts {
 public:
  explicit Recall(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "recall", 0, 1) {}
  void merge(const Recall& other) { merge_state(other); }
};

/// {"fbeta"}: the harmonic mean of precision and recall, with recall weighted by `beta`²; 0 if a class has
/// neither labels nor predictions.
class FBeta : public ClassCounts {
 public:
  /// Throws ArgumentError for a negative `beta`.
  explicit FBeta(double beta, ClassMetricOptions options = {});
  void merge(const FBeta& other) { merge_state(other); }
};

/// {"f1"}: FBeta with beta 1.
class F1 : public ClassCounts {
 public:
  explicit F1(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "f1", 1, 1) {}
  void merge(const F1& other) { merge_state(other); }
};

}  // namespace etude::inline v0::metrics
