#include "etude/optim/rules/lion_8bit.hpp"

namespace etude::inline v0 {

template class EightBitOptimizer<Lion8bitRule>;

}  // namespace etude::inline v0
