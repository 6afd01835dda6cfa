#include "etude/optim/rules/adamw_8bit.hpp"

namespace etude::inline v0 {

template class EightBitOptimizer<AdamW8bitRule>;

}  // namespace etude::inline v0
