#include "etude/loop/accumulation.hpp"

#include <fmt/format.h>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

std::int64_t Accumulation::in(std::int64_t epoch) const {
  if (!of_) return args_.gradient_accumulation_steps;
  const auto steps = of_(epoch);
  if (steps < 1)
    throw ArgumentError(
        fmt::format("gradient_accumulation_steps of epoch {} is {}: must be at least 1", epoch, steps));
  return steps;
}

AccumulationOf Accumulation::by_epoch(std::int64_t first) const {
  if (!of_) return {};
  return [this, first](std::int64_t epoch) { return in(first + epoch); };
}

}  // namespace etude::inline v0
