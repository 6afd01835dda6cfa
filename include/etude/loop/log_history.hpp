#pragma once

#include <cstddef>
#include <string>

#include "etude/checkpoint/trainer_state_text.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_state.hpp"

namespace etude::inline v0 {

/// Writes the lines of `state.log_history`, and keeps the text of `trainer_state.json` up to date with them.
class LogHistory {
 public:
  /// `state` must outlive this.
  explicit LogHistory(TrainerState& state) : state_(state) {}

  /// Called after `state` was replaced.
  void begin_training() { text_ = {}; }

  /// Appends a line of these logs and returns its number, or replaces a line. NaNs lose their sign.
  std::size_t add(Metrics& logs);
  void set(std::size_t line, Metrics& logs);
  void drop_from(std::size_t line);

  /// The text of `trainer_state.json`.
  std::string state_text() { return text_.of(state_); }

 private:
  TrainerState& state_;
  TrainerStateText text_;
};

}  // namespace etude::inline v0
