#include "etude/optim/rules/sgd.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<SGDRule>;

}  // namespace etude::inline v0
