#include "etude/callbacks/limit_batches.hpp"

#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void LimitBatchesCallback::on(const InitEnd&) { detail::check_fields(*this); }

}  // namespace etude::inline v0
