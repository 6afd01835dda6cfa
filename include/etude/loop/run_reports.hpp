#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/checkpoint/writer.hpp"
#include "etude/loop/activity_clock.hpp"
#include "etude/loop/log_history.hpp"
#include "etude/loop/log_window.hpp"
#include "etude/loop/loss_check.hpp"
#include "etude/loop/missing_labels.hpp"
#include "etude/loop/run_position.hpp"
#include "etude/loop/run_settings.hpp"
#include "etude/loop/token_counter.hpp"
#include "etude/loop/trained.hpp"
#include "etude/loop/unknown_divisor.hpp"
#include "etude/metrics/pending_logs.hpp"

namespace etude::inline v0 {

/// The logs, warnings, times and checkpoints of a run.
struct RunReports {
  PendingLogs pending_logs;
  std::vector<std::pair<std::string, torch::Tensor>>* loss_parts = nullptr;  ///< of a loss being computed
  LogWindow log_window;
  LogHistory log_history;
  TokenCounter token_counter;
  LossCheck loss_check;
  MissingLabels missing_labels;
  UnknownDivisor unknown_divisor;
  CheckpointWriter checkpoint_writer;
  mutable ActivityClock activity_clock;

  /// All must outlive this.
  RunReports(RunSettings& run, RunPosition& position, Trained& trained);

  /// Adds a value to the next log, or to the parts of the loss that is being computed. Throws DataError for a
  /// tensor that isn't one element.
  void log(std::string_view name, double value);
  void log(std::string_view name, const torch::Tensor& value);
};

}  // namespace etude::inline v0
