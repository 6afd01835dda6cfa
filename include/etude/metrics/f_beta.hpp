#pragma once

#include <string>
#include <utility>

#include "etude/metrics/class_counts.hpp"

namespace etude::inline v0::metrics {

/// {"precision"}: the fraction of a class's predictions that are correct; 0 without predictions.
class Precision : public ClassCounts {
 public:
  explicit Precision(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "precision") {}

  /// Throws DataError if a label or class is outside 0..C-1.
  Metrics compute() const { return mean_of(1, 0); }
  void merge(const Precision& other) { merge_state(other); }
};

/// {"recall"}: the fraction of a class's labels that were predicted; 0 without labels.
class Recall : public ClassCounts {
 public:
  explicit Recall(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "recall") {}

  /// Throws DataError if a label or class is outside 0..C-1.
  Metrics compute() const { return mean_of(0, 1); }
  void merge(const Recall& other) { merge_state(other); }
};

/// {"fbeta"}: the harmonic mean of precision and recall, with recall weighted by `beta`²; 0 if a class has
/// neither labels nor predictions.
class FBeta : public ClassCounts {
 public:
  /// Throws ArgumentError for a negative `beta`.
  explicit FBeta(double beta, ClassMetricOptions options = {});

  /// Throws DataError if a label or class is outside 0..C-1.
  Metrics compute() const { return mean_of(1, beta_ * beta_); }
  void merge(const FBeta& other) { merge_state(other); }

 protected:
  FBeta(double beta, ClassMetricOptions options, std::string name);

 private:
  double beta_;
};

/// {"f1"}: FBeta with beta 1.
class F1 : public FBeta {
 public:
  explicit F1(ClassMetricOptions options = {}) : FBeta(1, std::move(options), "f1") {}
  void merge(const F1& other) { merge_state(other); }
};

}  // namespace etude::inline v0::metrics
