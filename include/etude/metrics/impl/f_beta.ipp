#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/metrics/f_beta.hpp"

namespace etude::inline v0::metrics {

ETUDE_INLINE FBeta::FBeta(double beta, ClassMetricOptions options)
    : FBeta(beta, std::move(options), "fbeta") {}

ETUDE_INLINE FBeta::FBeta(double beta, ClassMetricOptions options, std::string name)
    : ClassCounts(std::move(options), std::move(name)), beta_(beta) {
  if (!(beta >= 0)) throw ArgumentError(fmt::format("beta is {}: must be at least 0", beta));
}

}  // namespace etude::inline v0::metrics
