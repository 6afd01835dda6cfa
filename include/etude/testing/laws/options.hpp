#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "etude/trainer_options.hpp"

namespace etude::laws {

/// What a callback needs, or may do, beyond the rule.
struct Options {
  /// Changes what the trainers are made of: arguments, `compute_metrics`, datasets, the loss. It gets options
  /// that are whole.
  std::function<void(TrainerOptions&)> prepare = {};
  /// Whether it changes neither weights nor modes nor random numbers; unset is yes if it writes no event.
  std::optional<bool> only_reads = {};
  /// Names in its state and logs whose values differ from run to run. Where a name has one of these words in
  /// it, values need not be equal: time, times, runtime, second, seconds, elapsed, duration, date, timestamp,
  /// memory, throughput.
  std::vector<std::string> varying = {};
  /// Its state goes on from one `train()` to the next on purpose.
  bool keeps_state_between_runs = false;
  /// Two of it may stand in one trainer.
  bool two_in_one_trainer = true;
  /// Two of it may be at work at once: one in a trainer that trains inside the other's training.
  bool two_at_once = true;
};

}  // namespace etude::laws
