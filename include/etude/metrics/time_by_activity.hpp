#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/reflect/enum.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// The activities that the wall time of a training is divided into:
///
/// - `setup`: the time before `TrainBegin`, for loaders, the optimizer and the checkpoint to resume;
/// - `data`: fetching batches, moving them to the device, and keeping the position in the data;
/// - `forward`, `backward`: `training_step` without and within the trainer's `backward(loss)`;
/// - `update`: clipping, the optimizer, the schedule, zeroing the gradients, and the end of a step;
/// - `communication`: sending messages to other processes, and waiting for theirs;
/// - `evaluation`, `saving`: evaluations and predictions; checkpoints and models;
/// - `logging`: reading and averaging what is logged;
/// - `callbacks`: handlers of events, without the evaluations and saving that they call;
/// - `program`: your program between the calls of `step`;
/// - `other`: the rest.
ETUDE_ENUM(TimedActivity, setup, data, forward, backward, update, communication, evaluation, saving, logging,
           callbacks, program, other);

/// The wall time of a training by activity, in seconds on the host. A GPU works asynchronously, so its time
/// appears in the activity in which the host waits for it, such as `logging`.
struct TimeByActivity {
  std::array<double, enum_names<TimedActivity>.size()> seconds = {};

  double operator[](TimedActivity activity) const { return seconds[static_cast<std::size_t>(activity)]; }
  /// The total wall time.
  double total() const;
  /// The fraction of the total that an activity takes; 0 if the total is 0.
  double share(TimedActivity activity) const;
  /// A table with the seconds and the percentage of each activity, longest first.
  std::string table() const;
};

/// Facts that `advice` needs in addition to times and arguments.
struct AdviceFacts {
  std::int64_t steps = 0;  ///< update steps in that time
  int threads = 1;         ///< threads that LibTorch uses for an operator
  int cores = 1;           ///< cores that this process may use
  bool on_cpu = true;
};

/// Suggests arguments that would make a training faster if an activity takes much of its time, one per line.
/// Empty for a training of less than ten seconds.
std::vector<std::string> advice(const TimeByActivity& times, const TrainingArguments& args,
                                const AdviceFacts& facts);

}  // namespace etude::inline v0
