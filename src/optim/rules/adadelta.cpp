#include "etude/optim/rules/adadelta.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<AdadeltaRule>;

}  // namespace etude::inline v0
