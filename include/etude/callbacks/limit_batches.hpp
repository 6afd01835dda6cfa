#pragma once

#include <cstdint>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Ends each epoch of training and each evaluation after `num_batches` batches, to try a program out. Follows
/// pytorch-accelerated's callback of this name; the steps of the training are those that there are then, and
/// a last accumulation group that is shorter makes its update. Predictions stay whole. To limit the batches
/// of a program as it is, see `LimitBatches`. Throws ArgumentError for a number below 1.
struct LimitBatchesCallback {
  using this_callback = LimitBatchesCallback;
  ETUDE_STRUCT(LimitBatchesCallback, (std::int64_t, num_batches, "batches of an epoch or an evaluation", 0));

  void on(const InitEnd&);
  void on(DataLoaderCreated& e);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/limit_batches.ipp"
#endif
