#include "etude/metrics/f_beta.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "etude/base/error.hpp"

namespace etude::inline v0::metrics {

FBeta::FBeta(double beta, ClassMetricOptions options) : FBeta(beta, std::move(options), "fbeta") {}

FBeta::FBeta(double beta, ClassMetricOptions options, std::string name)
    : ClassCounts(std::move(options), std::move(name)), beta_(beta) {
  if (!(beta >= 0)) throw ArgumentError(fmt::format("beta is {}: must be at least 0", beta));
}

}  // namespace etude::inline v0::metrics
