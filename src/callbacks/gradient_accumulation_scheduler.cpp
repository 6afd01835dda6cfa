#include "etude/callbacks/gradient_accumulation_scheduler.hpp"

#include <fmt/format.h>

#include <iterator>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

void GradientAccumulationScheduler::on(AccumulationPlanned& e) const {
  for (const auto& [epoch, steps] : scheduling)
    if (epoch < 0 || steps < 1)
      throw ArgumentError(
          fmt::format("scheduling has {{{}, {}}}: must be an epoch >= 0 and a number of micro-batches >= 1",
                      epoch, steps));
  const auto after = scheduling.upper_bound(e.epoch);
  if (after != scheduling.begin()) e.gradient_accumulation_steps = std::prev(after)->second;
}

}  // namespace etude::inline v0
