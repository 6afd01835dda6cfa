#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude {

/// What `compute_metrics` is given: everything that an evaluation saw, the examples along the first
/// dimension, on the CPU. Where sequences of different lengths met, the shorter are padded with -100 on the
/// right.
struct EvalPrediction {
  Tensors predictions;  ///< The model's outputs, less the loss and `ignore_keys`; what
                        ///< `preprocess_logits_for_metrics` made.
  Tensors label_ids;
  Tensors inputs;     ///< If `include_for_metrics` names "inputs".
  at::Tensor losses;  ///< If it names "loss": one value per example, float32 [examples].
  /// The batches one by one instead, with `eval_do_concat_batches = false`; the fields above are empty then.
  std::vector<EvalPrediction> batches;
};

/// Computes the metrics of an evaluation; their names get the evaluation's prefix. With `batch_eval_metrics`
/// it must take a second argument, `bool compute_result`: it is called with each batch, true with the last
/// one, and what it returns then counts.
class ComputeMetrics {
 public:
  ComputeMetrics() = default;

  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, ComputeMetrics>)
  ComputeMetrics(F function) {
    if constexpr (std::is_invocable_r_v<Metrics, F&, const EvalPrediction&>) {
      call_ = [function = std::move(function)](const EvalPrediction& p, bool) mutable -> Metrics {
        return function(p);
      };
    } else {
      static_assert(
          std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>,
          "compute_metrics must be Metrics(const EvalPrediction&) or Metrics(const EvalPrediction&, bool)");
      call_ = std::move(function);
      takes_compute_result_ = true;
    }
  }

  explicit operator bool() const { return static_cast<bool>(call_); }
  bool takes_compute_result() const { return takes_compute_result_; }
  Metrics operator()(const EvalPrediction& prediction, bool compute_result = true) const {
    return call_(prediction, compute_result);
  }

 private:
  std::function<Metrics(const EvalPrediction&, bool)> call_;
  bool takes_compute_result_ = false;
};

}  // namespace etude
