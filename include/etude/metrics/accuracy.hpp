#pragma once

#include "etude/metrics/eval_prediction.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::metrics {

/// {"accuracy"}: the share of labels that are the class of the greatest logit. Labels [N, ...] of an integer
/// dtype, -100 left out; predictions are logits [N, ..., C] or [N, C, ...], or already classes of the shape
/// of the labels. Throws `DataError` for other shapes.
Metrics accuracy(const EvalPrediction& p);

}  // namespace etude::metrics

#ifndef ETUDE_COMPILED
#include "etude/metrics/accuracy-inl.hpp"
#endif
