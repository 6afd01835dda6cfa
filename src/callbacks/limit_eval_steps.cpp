#include "etude/callbacks/limit_eval_steps.hpp"

#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void LimitEvalStepsCallback::on(const InitEnd&) { detail::check_fields(*this); }

}  // namespace etude::inline v0
