#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/training_arguments.hpp"

/// Finds and reads the parts of a run.
namespace tool {

enum class Kind { checkpoint, run, model, safetensors, torch };

/// Throws etude::CheckpointError for anything else; the message lists what can be read.
Kind kind_of(const std::filesystem::path& path);

/// The newest checkpoint of a run that has a valid manifest or was written by another program. Skipped
/// checkpoints are reported on stderr. Throws etude::CheckpointError if there is none.
std::filesystem::path newest_checkpoint(const std::filesystem::path& run);

/// A file of a checkpoint as JSON; unset if it doesn't exist. Throws etude::CheckpointError with its path.
std::optional<nlohmann::ordered_json> read_json_file(const std::filesystem::path& path);

/// Saved arguments as a training has them; unset if this version can't read them.
std::optional<etude::TrainingArguments> arguments_of(const std::optional<nlohmann::ordered_json>& saved);

/// The name in logs of the metric that decides which model is best; empty if none does.
std::string best_metric_name(const std::optional<etude::TrainingArguments>& arguments);

}  // namespace tool
