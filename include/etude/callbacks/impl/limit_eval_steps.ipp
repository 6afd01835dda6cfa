#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/callbacks/limit_eval_steps.hpp"
#include "etude/events.hpp"

namespace etude {

ETUDE_INLINE void LimitEvalStepsCallback::on(const InitEnd&) {
  if (num_eval_steps < 1)
    throw ArgumentError(fmt::format("num_eval_steps is {}: must be at least 1", num_eval_steps));
}

ETUDE_INLINE void LimitEvalStepsCallback::on(DataLoaderCreated& e) {
  if (e.use != LoaderUse::evaluate || (limit_intermediate_only && !e.is_intermediate)) return;
  e.max_batches = std::min(e.max_batches.value_or(num_eval_steps), num_eval_steps);
}

}  // namespace etude
