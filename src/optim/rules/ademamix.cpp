#include "etude/optim/rules/ademamix.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<AdEMAMixRule>;

}  // namespace etude::inline v0
