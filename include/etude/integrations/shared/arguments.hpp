#pragma once

#include <nlohmann/json.hpp>

#include "etude/any_trainer.hpp"
#include "etude/events.hpp"
#include "etude/integrations/shared/parameters.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail {

/// The arguments of a run as a tracker shows them: with the `output_dir` that the user gave, so that a run's
/// name doesn't depend on where the program was started.
TrainingArguments tracked_arguments(const Context& e);

inline nlohmann::ordered_json run_parameters(const Context& e, const nlohmann::ordered_json& config) {
  return run_parameters(tracked_arguments(e), config, e.state.trial_params);
}

}  // namespace etude::inline v0::detail
