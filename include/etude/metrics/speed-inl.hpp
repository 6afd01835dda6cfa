#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include "etude/linkage.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/speed.hpp"

namespace etude {

ETUDE_INLINE Metrics speed_metrics(const std::string& split, std::chrono::steady_clock::time_point start,
                                   std::int64_t num_samples, std::int64_t num_steps) {
  const auto round = [](double value, double unit) { return std::round(value * unit) / unit; };
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Metrics metrics{{split + "_runtime", round(seconds, 1e4)}};
  if (seconds > 0) {
    metrics[split + "_samples_per_second"] = round(static_cast<double>(num_samples) / seconds, 1e3);
    metrics[split + "_steps_per_second"] = round(static_cast<double>(num_steps) / seconds, 1e3);
  }
  return metrics;
}

}  // namespace etude
