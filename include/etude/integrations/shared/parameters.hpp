#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail {

/// A run's parameters for a tracker: the training arguments, a trial's hyperparameters, and the members of
/// the user's `config`; of equal names, the first of these wins. A `config` that isn't an object is stored
/// under "config".
nlohmann::ordered_json run_parameters(const TrainingArguments& args, const nlohmann::ordered_json& config,
                                      const nlohmann::json& trial_params = nullptr);

/// The values of nested objects, each under its path: {"a": {"b": 1}} is a.b = 1. Lists and empty objects
/// don't change.
std::vector<std::pair<std::string, nlohmann::ordered_json>> flattened(const nlohmann::ordered_json& values,
                                                                      std::string_view separator = ".");

/// A value as the plain text that trackers show: a string without quotes, null as "None", true as "True", as
/// Python's clients write them.
std::string parameter_text(const nlohmann::ordered_json& value);

/// The name of the run: `run_name`, or else `output_dir`, as with Hugging Face.
std::string run_name_of(const TrainingArguments& args);

}  // namespace etude::inline v0::detail
