#pragma once

#include <algorithm>
#include <cstdint>

#include "etude/events.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Ends each training epoch and each evaluation after `num_batches` batches, to try out a program. Follows
/// pytorch-accelerated's callback of this name. The planned steps take the limit into account, and a shorter
/// last accumulation group still makes an update. Predictions aren't limited. To limit the batches without
/// changing the program, see `LimitBatches`. Throws ArgumentError for a number below 1.
struct LimitBatchesCallback {
  ETUDE_STRUCT(LimitBatchesCallback,
               (std::int64_t, num_batches, "batches of an epoch or an evaluation" | at_least(1), 0));

  void on(const InitEnd&) { detail::check_fields(*this); }
  void on(DataLoaderCreated& e) {
    if (e.use != LoaderUse::predict)
      e.max_batches = std::min(e.max_batches.value_or(num_batches), num_batches);
  }
};

}  // namespace etude::inline v0
