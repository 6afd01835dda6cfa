#include "etude/optim/rules/adagrad.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<AdagradRule>;

}  // namespace etude::inline v0
