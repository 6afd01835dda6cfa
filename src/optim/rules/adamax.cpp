#include "etude/optim/rules/adamax.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<AdamaxRule>;

}  // namespace etude::inline v0
