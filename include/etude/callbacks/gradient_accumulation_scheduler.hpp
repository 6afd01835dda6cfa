#pragma once

#include <cstdint>
#include <map>

#include "etude/events.hpp"

namespace etude {

/// Changes from epoch to epoch how many micro-batches make an update: PyTorch Lightning's callback of this
/// name.
/// `{{0, 1}, {4, 8}}` means 1 in epochs 0 to 3 and 8 from epoch 4 on; before the first that is named it is
/// `args.gradient_accumulation_steps`. The steps of the training and its schedule are planned with it, and a
/// short last group weighs as the batches that it has.
///
/// Throws ArgumentError before training for an epoch below 0 or a number below 1.
struct GradientAccumulationScheduler {
  using this_callback = GradientAccumulationScheduler;
  std::map<std::int64_t, std::int64_t> scheduling = {};  ///< micro-batches of an update, by first epoch

  void on(AccumulationPlanned& e) const;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/gradient_accumulation_scheduler.ipp"
#endif
