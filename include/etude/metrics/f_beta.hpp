#pragma once

#include <string>
#include <utility>

#include "etude/metrics/class_counts.hpp"

namespace etude::metrics {

/// {"precision"}: of the predictions of a class, the share that is right; 0 where there are none.
class Precision : public ClassCounts {
 public:
  explicit Precision(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "precision") {}

  /// Throws DataError if some label or class was outside of 0..C-1.
  Metrics compute() const { return mean_of(1, 0); }
  void merge(const Precision& other) { merge_state(other); }
};

/// {"recall"}: of the labels of a class, the share that was found; 0 where there are none.
class Recall : public ClassCounts {
 public:
  explicit Recall(ClassMetricOptions options = {}) : ClassCounts(std::move(options), "recall") {}

  /// Throws DataError if some label or class was outside of 0..C-1.
  Metrics compute() const { return mean_of(0, 1); }
  void merge(const Recall& other) { merge_state(other); }
};

/// {"fbeta"}: the harmonic mean of precision and recall, where recall counts `beta`² times as much; 0 where a
/// class has neither labels nor predictions.
class FBeta : public ClassCounts {
 public:
  /// Throws ArgumentError unless `beta` is 0 or positive.
  explicit FBeta(double beta, ClassMetricOptions options = {});

  /// Throws DataError if some label or class was outside of 0..C-1.
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

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/impl/f_beta.ipp"
#endif
