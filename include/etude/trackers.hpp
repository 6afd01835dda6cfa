#pragma once

#include <string_view>
#include <vector>

namespace etude {

struct TrainingArguments;

/// A tracker as `TrainingArguments::report_to` has it, and the callback that speaks to it: the names of
/// Hugging Face's Trainer.
struct TrackerName {
  std::string_view name, callback, option;  ///< `option` is the one of CMake that it needs.
};

inline constexpr TrackerName trackers[] = {{"tensorboard", "TensorBoardCallback", "ETUDE_TENSORBOARD"},
                                           {"wandb", "WandbCallback", "ETUDE_WANDB"},
                                           {"comet_ml", "CometCallback", "ETUDE_COMET"},
                                           {"mlflow", "MLflowCallback", "ETUDE_MLFLOW"},
                                           {"azure_ml", "AzureMLCallback", "ETUDE_AZUREML"},
                                           {"codecarbon", "CodeCarbonCallback", "ETUDE_CODECARBON"}};

/// Throws ArgumentError for a tracker of `report_to` whose callback isn't among those of these names.
void check_report_to(const TrainingArguments& args, const std::vector<std::string_view>& callbacks);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/trackers-inl.hpp"
#endif
