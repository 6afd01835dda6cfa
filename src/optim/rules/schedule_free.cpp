#include "etude/optim/rules/schedule_free.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<AdamWScheduleFreeRule>;
template class RuleOptimizer<SGDScheduleFreeRule>;

}  // namespace etude::inline v0
