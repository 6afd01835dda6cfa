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
/// one, and what it returns then counts. One that may be called in both ways works with and without. If it
/// has a `void reset()`, that is called when an evaluation begins, since the one before may have been broken
/// off.
class ComputeMetrics {
 public:
  ComputeMetrics() = default;

  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, ComputeMetrics>)
  ComputeMetrics(F function)
      : takes_whole_(std::is_invocable_r_v<Metrics, F&, const EvalPrediction&>),
        takes_compute_result_(std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>) {
    static_assert(
        std::is_invocable_r_v<Metrics, F&, const EvalPrediction&> ||
            std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>,
        "compute_metrics must be Metrics(const EvalPrediction&) or Metrics(const EvalPrediction&, bool)");
    call_ = [function = std::move(function)](const EvalPrediction* p,
                                             bool compute_result) mutable -> Metrics {
      if (!p) {
        if constexpr (requires {
                        { function.reset() } -> std::same_as<void>;
                      })
          function.reset();
        return {};
      }
      if constexpr (std::is_invocable_r_v<Metrics, F&, const EvalPrediction&, bool>)
        return function(*p, compute_result);
      else
        return function(*p);
    };
  }

  explicit operator bool() const { return static_cast<bool>(call_); }
  bool takes_whole() const { return takes_whole_; }
  bool takes_compute_result() const { return takes_compute_result_; }

  /// An evaluation begins.
  void begin() const {
    if (call_) call_(nullptr, false);
  }
  Metrics operator()(const EvalPrediction& prediction, bool compute_result = true) const {
    return call_(&prediction, compute_result);
  }

 private:
  std::function<Metrics(const EvalPrediction*, bool)> call_;  ///< Null: an evaluation begins.
  bool takes_whole_ = true;
  bool takes_compute_result_ = false;
};

}  // namespace etude
