#include "etude/optim/rules/lion.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<LionRule>;

}  // namespace etude::inline v0
