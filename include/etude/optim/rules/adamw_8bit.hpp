#pragma once

#include <cstdint>

#include "etude/optim/eight_bit_optimizer.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct AdamW8bitOptions {
  ETUDE_STRUCT(AdamW8bitOptions, (double, lr, "learning rate" | at_least(0), 1e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.9),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.999),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 1e-2),
               (std::int64_t, min_8bit_size,
                "parameters with fewer elements keep float32 moments" | at_least(0), 4096));
};

/// AdamW with 8-bit moments, like bitsandbytes' AdamW8bit: see EightBitOptimizer.
struct AdamW8bitRule : detail::AnyAdamRule<true, AdamW8bitOptions> {};
using AdamW8bit = EightBitOptimizer<AdamW8bitRule>;
extern template class EightBitOptimizer<AdamW8bitRule>;

}  // namespace etude::inline v0
