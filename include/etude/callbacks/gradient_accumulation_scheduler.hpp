#pragma once

#include <cstdint>
#include <map>

#include "etude/events.hpp"

namespace etude::inline v0 {

/// Changes the number of micro-batches per update from epoch to epoch. Follows PyTorch Lightning's callback
/// of this name. `{{0, 1}, {4, 8}}` means 1 in epochs 0 to 3 and 8 from epoch 4 on; before the first listed
/// epoch, the number is `args.gradient_accumulation_steps`. The training's planned steps and schedule take
/// this into account, and a short last group is averaged over the batches that it has.
///
/// Throws ArgumentError before training for an epoch below 0 or a number below 1.
struct GradientAccumulationScheduler {
  std::map<std::int64_t, std::int64_t> scheduling = {};  ///< micro-batches per update, by first epoch

  void on(AccumulationPlanned& e) const;
};

}  // namespace etude::inline v0
