#include "etude/callbacks/limit_batches.hpp"

#include <algorithm>

#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void LimitBatchesCallback::on(const InitEnd&) { detail::check_fields(*this); }

void LimitBatchesCallback::on(DataLoaderCreated& e) {
  if (e.use != LoaderUse::predict) e.max_batches = std::min(e.max_batches.value_or(num_batches), num_batches);
}

}  // namespace etude::inline v0
