#pragma once

#include "etude/base/linkage.hpp"
#include "etude/callbacks/limit_eval_steps.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

ETUDE_INLINE void LimitEvalStepsCallback::on(const InitEnd&) { detail::check_fields(*this); }

}  // namespace etude::inline v0
