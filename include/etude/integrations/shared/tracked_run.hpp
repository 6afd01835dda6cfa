#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/training_arguments.hpp"

/// A run's properties as trackers show them.
namespace etude::inline v0::detail {

/// A run's parameters for a tracker: the training arguments, a trial's hyperparameters, and the members of
/// the user's `config`; if names are equal, the first of these sources wins. A `config` that isn't an object
/// is stored under "config".
nlohmann::ordered_json run_parameters(const TrainingArguments& args, const nlohmann::ordered_json& config,
                                      const nlohmann::json& trial_params = nullptr);
nlohmann::ordered_json run_parameters(const Context& e, const nlohmann::ordered_json& config);

/// The arguments of a run as a tracker shows them: with the `output_dir` that the user gave, so that a run's
/// name doesn't depend on where the program was started.
TrainingArguments tracked_arguments(const Context& e);

/// The values of nested objects, each under its path: {"a": {"b": 1}} becomes a.b = 1. Lists and empty
/// objects don't change.
std::vector<std::pair<std::string, nlohmann::ordered_json>> flattened(const nlohmann::ordered_json& values,
                                                                      std::string_view separator = ".");

/// A value as the plain text that trackers show: a string without quotes, null as "None", true as "True", as
/// Python's clients write them.
std::string parameter_text(const nlohmann::ordered_json& value);

/// The name of the run: `run_name`, or else `output_dir`, as with Hugging Face.
std::string run_name_of(const TrainingArguments& args);

/// A metric's name in TensorBoard, Weights & Biases and Comet: `eval_loss` is eval/loss, `test_loss` is
/// test/loss, and everything else train/..., as in Hugging Face's `rewrite_logs`.
std::string tracked_name(std::string_view name);

/// The search that a trial belongs to, for trackers that show its trials together.
struct TrackedSearch {
  std::filesystem::path folder;  ///< The search's folder, the same for all its trials.
  std::string name;              ///< `run_name` if the user has set it, or else the folder's name.
  bool has_folders = false;      ///< Each trial has a folder of its name in `folder`.
};

/// Unset for a training that isn't a trial.
std::optional<TrackedSearch> search_of(const Context& e);

}  // namespace etude::inline v0::detail
