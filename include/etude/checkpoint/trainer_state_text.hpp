#pragma once

#include <cstddef>
#include <string>

#include "etude/trainer_state.hpp"

namespace etude::inline v0 {

/// The text of `trainer_state.json`: keys in their order, and non-finite numbers unquoted, as Python writes
/// and reads them.
std::string trainer_state_text(const TrainerState& state);

/// The same, for repeated use in one run: each line of the history is formatted only once, so that the last
/// checkpoint of a long run costs no more than the first.
class TrainerStateText {
 public:
  std::string of(TrainerState& state);
  /// Must be called when the history has changed from `line` on, other than by appending lines.
  void forget_from(std::size_t line);

 private:
  std::string history_;
  std::size_t lines_ = 0;
};

}  // namespace etude::inline v0
