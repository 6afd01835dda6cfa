#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "etude/trainer_options.hpp"

namespace etude::inline v0::laws {

/// A callback's needs and permissions beyond the defaults.
struct Options {
  /// Changes the trainers' options: arguments, `compute_metrics`, datasets, the loss. The options passed to
  /// it are complete.
  std::function<void(TrainerOptions&)> prepare = {};
  /// Whether the callback leaves weights, modes and random numbers unchanged; if unset, true if it writes no
  /// event.
  std::optional<bool> only_reads = {};
  /// Names in its state and logs whose values vary between runs. Values may also differ if their name
  /// contains one of these words: time, times, runtime, second, seconds, elapsed, duration, date, timestamp,
  /// memory, mem, throughput.
  std::vector<std::string> varying = {};
  /// Its state intentionally carries over from one `train()` to the next.
  bool keeps_state_between_runs = false;
  /// Two of them may be in one trainer.
  bool two_in_one_trainer = true;
  /// Two of them may be active at once, one in a trainer that trains during the other's training.
  bool two_at_once = true;
};

}  // namespace etude::inline v0::laws
