#include "etude/optim/rules/radam.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<RAdamRule>;

}  // namespace etude::inline v0
