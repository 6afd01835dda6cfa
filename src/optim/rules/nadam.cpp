#include "etude/optim/rules/nadam.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<NAdamRule>;

}  // namespace etude::inline v0
