#pragma once

#include <cstdint>

#include "etude/optim/eight_bit_optimizer.hpp"
#include "etude/optim/rules/lion.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct Lion8bitOptions {
  ETUDE_STRUCT(Lion8bitOptions, (double, lr, "learning rate" | at_least(0), 1e-4),
               (double, beta1, "weight of the momentum in the update" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the momentum" | at_least(0).below(1), 0.99),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 0.0),
               (std::int64_t, min_8bit_size,
                "parameters with fewer elements keep a float32 momentum" | at_least(0), 4096));
};

/// Lion with an 8-bit momentum, like bitsandbytes' Lion8bit: see EightBitOptimizer.
struct Lion8bitRule : detail::AnyLionRule<Lion8bitOptions> {};
using Lion8bit = EightBitOptimizer<Lion8bitRule>;
extern template class EightBitOptimizer<Lion8bitRule>;

}  // namespace etude::inline v0
