#pragma once

#include <string>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_options.hpp"

namespace etude::inline v0 {

/// Throws DataError if evaluations are planned and one of their datasets is empty. A trainer that overrides
/// `get_eval_dataloader` isn't checked, since its loaders may differ.
void check_eval_datasets(const RunSettings& run);

/// Evaluates each dataset, logs its metrics, and returns all of them.
Metrics evaluate_all(EventSource& events, const EvalDatasets& datasets, const std::string& prefix,
                     const std::vector<std::string>& ignore_keys);

/// Returns the metrics of the first batch of each `eval_dataset`; raises no event.
Metrics evaluate_first_batches(EventSource& events);

/// The outputs and the metrics of a dataset.
PredictionOutput predict_all(EventSource& events, const Dataset& dataset, const PredictOptions& options);

/// The outputs of a batch, with their loss if it has labels or the loss needs none. Whether the user's loss
/// needs labels is known only when it asks for them.
LossOutput outputs_of(EventSource& events, const Batch& batch);

}  // namespace etude::inline v0
