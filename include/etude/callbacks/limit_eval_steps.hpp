#pragma once

#include <algorithm>
#include <cstdint>

#include "etude/events.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Ends evaluations within an epoch or, without `limit_intermediate_only`, all evaluations, after
/// `num_eval_steps` batches. Follows pytorch-accelerated's callback of this name, which limits only the
/// progress bar. With several datasets, the limit applies to each.
///
/// A limited evaluation's metrics count like any other's: for `load_best_model_at_end`, and for callbacks
/// that watch a metric, unless their `count_intermediate` is false. Throws ArgumentError for a number below
/// 1.
struct LimitEvalStepsCallback {
  ETUDE_STRUCT(LimitEvalStepsCallback,
               (std::int64_t, num_eval_steps, "batches of a limited evaluation" | at_least(1), 0),
               (bool, limit_intermediate_only, "don't limit evaluations outside of an epoch", true));

  void on(const InitEnd&) { detail::check_fields(*this); }
  void on(DataLoaderCreated& e) {
    if (e.use == LoaderUse::evaluate && (e.is_intermediate || !limit_intermediate_only))
      e.max_batches = std::min(e.max_batches.value_or(num_eval_steps), num_eval_steps);
  }
};

}  // namespace etude::inline v0
