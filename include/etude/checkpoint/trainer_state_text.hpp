#pragma once

#include <cstddef>
#include <string>

#include "etude/trainer_state.hpp"

namespace etude {

/// The text of `trainer_state.json`: keys in their order, and numbers that aren't finite as Python writes and
/// reads them, bare.
std::string trainer_state_text(const TrainerState& state);

/// The same for one run, again and again: lines of the history that were written before aren't spelled anew,
/// so that the last checkpoint of a long run costs what the first did.
class TrainerStateText {
 public:
  std::string of(TrainerState& state);
  /// To be told where the history has changed from `line` on, other than by lines behind those that were
  /// there.
  void forget_from(std::size_t line);

 private:
  std::string history_;
  std::size_t lines_ = 0;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/checkpoint/impl/trainer_state_text.ipp"
#endif
