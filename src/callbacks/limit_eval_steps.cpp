#include "etude/callbacks/limit_eval_steps.hpp"

#include <algorithm>

#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void LimitEvalStepsCallback::on(const InitEnd&) { detail::check_fields(*this); }

void LimitEvalStepsCallback::on(DataLoaderCreated& e) {
  if (e.use != LoaderUse::evaluate || (limit_intermediate_only && !e.is_intermediate)) return;
  e.max_batches = std::min(e.max_batches.value_or(num_eval_steps), num_eval_steps);
}

}  // namespace etude::inline v0
