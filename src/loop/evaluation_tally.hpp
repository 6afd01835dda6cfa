#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "etude/data/batch.hpp"
#include "etude/loop/gather.hpp"
#include "etude/loop/run_settings.hpp"
#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// The parts of its batches that an evaluation keeps: only the loss, the inputs of its metrics, or
/// everything.
enum class Keep { loss, metrics, all };

/// The result of an evaluation.
struct EvaluationResult {
  EvalPrediction prediction;
  Metrics metrics;
};

/// The data that each of several processes goes over: everything, its part of every batch, or its part of the
/// data, which is divided already.
enum class EvaluationParts { none, of_batches, of_data };

/// Accumulates the batches of an evaluation.
class EvaluationTally {
 public:
  /// `examples`: the expected number, if known.
  EvaluationTally(const RunSettings& run, LossReduction reduction, Keep keep,
                  std::optional<std::int64_t> examples, EvaluationParts parts = EvaluationParts::none);
  ~EvaluationTally();

  /// Adds the loss of a batch and the parts of that loss, weighted by `items`, the number of elements that
  /// the loss is a mean over. Throws DataError for a loss or part that isn't a single element.
  void add_loss(const PredictionStepOutput& output, const LossDivisor& items);
  /// Adds the rest of a batch and, with `batch_eval_metrics`, updates the metrics. A batch that is padding
  /// counts as having no examples.
  void add(const Batch& batch, PredictionStepOutput output, bool is_last, bool is_padding = false);

  /// Returns the loss and the metrics of all processes, with names that begin with `prefix`.
  EvaluationResult take(const std::string& prefix);

 private:
  /// Whether the processes merge the states of a metric instead of gathering its batches.
  bool merges() const;
  /// Whether `compute_metrics` is called: it needs labels to compare with.
  bool computes(const EvalPrediction& prediction) const;

  const RunSettings& run_;
  bool adds_up_;  // the loss is a sum
  Keep keep_;
  EvaluationParts parts_of_;
  bool is_part_, wants_inputs_, wants_losses_;
  BatchRows rows_;
  Gathered all_;
  Metrics computed_;
  RunningMean loss_;
  std::int64_t losses_ = 0;  // the number of losses
  PendingLogs parts_;        // of the loss
};

}  // namespace etude::inline v0
