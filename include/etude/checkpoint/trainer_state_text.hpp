#pragma once

#include <cstddef>
#include <string>

#include "etude/trainer_state.hpp"

namespace etude::inline v0 {

/// The text of `trainer_state.json`: keys in their order, and non-finite numbers bare, as Python writes and
/// reads them.
std::string trainer_state_text(const TrainerState& state);

/// The same for one run, repeatedly: lines of the history are formatted only once, so that the last
/// checkpoint of a long run costs what the first did.
class TrainerStateText {
 public:
  std::string of(TrainerState& state);
  /// Must be called if the history has changed from `line` on in any way other than appended lines.
  void forget_from(std::size_t line);

 private:
  std::string history_;
  std::size_t lines_ = 0;
};

}  // namespace etude::inline v0
