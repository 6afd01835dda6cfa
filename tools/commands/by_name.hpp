#pragma once

#include <array>
#include <etude/metrics/eval_prediction.hpp>
#include <etude/model/loss.hpp>
#include <etude/reflect/enum.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Losses, metrics and callbacks by their names on a command line.
namespace tool {

ETUDE_ENUM(LossName, model, cross_entropy, bce_with_logits, mse, l1, huber, smooth_l1);

/// True if the loss's labels are numbers, not classes.
bool takes_numbers(LossName loss);

/// The loss of the first output: the mean over its elements or, for `cross_entropy`, over the labels that
/// aren't -100. Scores are [N, C], or [N, ..., C] for labels [N, ...]. None for `model`.
etude::Loss loss_named(LossName loss);

/// The metrics that `metrics_named` knows.
inline constexpr std::array<std::string_view, 12> metric_names{
    "accuracy",          "top_5_accuracy",    "precision",  "recall", "f1",  "auroc",
    "average_precision", "calibration_error", "perplexity", "mae",    "mse", "r2"};

/// Several metrics, computed batch by batch from the first output. `shifts_labels`: each score is for the
/// next label, as in transformers' language models.
etude::ComputeMetrics metrics_named(const std::vector<std::string>& names, bool shifts_labels);

/// Splits "EarlyStoppingCallback: early_stopping_patience=3" into its parts. Throws ArgumentError.
std::pair<std::string, nlohmann::json> name_and_options(std::string_view text);

}  // namespace tool
