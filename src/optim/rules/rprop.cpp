#include "etude/optim/rules/rprop.hpp"

#include <fmt/format.h>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

template class RuleOptimizer<RpropRule>;

void RpropRule::check(const Options& options) {
  if (options.step_size_min > options.step_size_max)
    throw ArgumentError(fmt::format("step_size_min is {}: must be at most step_size_max, which is {}",
                                    options.step_size_min, options.step_size_max));
}

}  // namespace etude::inline v0
