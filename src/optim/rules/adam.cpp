#include "etude/optim/rules/adam.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<AdamRule>;
template class RuleOptimizer<AdamWRule>;

}  // namespace etude::inline v0
