#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "etude/metrics/eval_prediction.hpp"

namespace etude::inline v0 {

/// The names that `named_metrics` takes.
inline constexpr std::array<std::string_view, 12> known_metrics{
    "accuracy",          "top_5_accuracy",    "precision",  "recall", "f1",  "auroc",
    "average_precision", "calibration_error", "perplexity", "mae",    "mse", "r2"};

/// Several metrics, computed batch by batch from the first output; empty without names. `shifts_labels`: each
/// score is for the next label, as in transformers' language models. Throws ArgumentError for a name that
/// isn't among `known_metrics`.
ComputeMetrics named_metrics(const std::vector<std::string>& names, bool shifts_labels);

}  // namespace etude::inline v0
