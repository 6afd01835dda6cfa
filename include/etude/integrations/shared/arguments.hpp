#pragma once

#include "etude/any_trainer.hpp"
#include "etude/events.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail {

/// The arguments of a run as a tracker shows them: with the `output_dir` that the user gave, so that a run's
/// name doesn't depend on where the program was started.
inline TrainingArguments tracked_arguments(const Context& e) {
  auto args = e.args;
  args.output_dir = normalized(e.trainer.options().args).output_dir;
  return args;
}

}  // namespace etude::inline v0::detail
