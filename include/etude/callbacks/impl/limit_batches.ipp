#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/callbacks/limit_batches.hpp"
#include "etude/events.hpp"

namespace etude {

ETUDE_INLINE void LimitBatchesCallback::on(const InitEnd&) {
  if (num_batches < 1) throw ArgumentError(fmt::format("num_batches is {}: must be at least 1", num_batches));
}

ETUDE_INLINE void LimitBatchesCallback::on(DataLoaderCreated& e) {
  if (e.use != LoaderUse::predict) e.max_batches = std::min(e.max_batches.value_or(num_batches), num_batches);
}

}  // namespace etude
