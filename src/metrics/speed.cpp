#include "etude/metrics/speed.hpp"

#include <cmath>
#include <initializer_list>
#include <utility>

namespace etude::inline v0 {
namespace detail {

namespace {

Metrics speeds(const std::string& split, std::chrono::steady_clock::time_point start,
               std::initializer_list<std::pair<const char*, double>> counts) {
  const auto round = [](double value, double unit) { return std::round(value * unit) / unit; };
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Metrics metrics{{split + "_runtime", round(seconds, 1e4)}};
  if (seconds > 0)
    for (const auto& [what, count] : counts)
      metrics[split + "_" + what + "_per_second"] = round(count / seconds, 1e3);
  return metrics;
}

}  // namespace

}  // namespace detail

Metrics speed_metrics(const std::string& split, std::chrono::steady_clock::time_point start,
                      double num_samples, std::int64_t num_steps) {
  return detail::speeds(split, start, {{"samples", num_samples}, {"steps", static_cast<double>(num_steps)}});
}

Metrics token_speed(const std::string& split, std::chrono::steady_clock::time_point start,
                    std::int64_t num_tokens) {
  return detail::speeds(split, start, {{"tokens", static_cast<double>(num_tokens)}});
}

bool is_speed(std::string_view name) {
  return name.ends_with("_runtime") || name.ends_with("_per_second") || name.ends_with("_compilation_time") ||
         name.ends_with("_preparation_time");
}

}  // namespace etude::inline v0
