#include "etude/optim/rules/rmsprop.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<RMSpropRule>;

}  // namespace etude::inline v0
