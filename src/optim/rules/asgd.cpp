#include "etude/optim/rules/asgd.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<ASGDRule>;

}  // namespace etude::inline v0
