#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

/// `{split}_runtime` in seconds since `start`, `{split}_samples_per_second` and `{split}_steps_per_second`;
/// rounded and named as by Hugging Face's `speed_metrics`.
Metrics speed_metrics(const std::string& split, std::chrono::steady_clock::time_point start,
                      double num_samples, std::int64_t num_steps);

/// `{split}_runtime` in seconds since `start`, and `{split}_tokens_per_second`.
Metrics token_speed(const std::string& split, std::chrono::steady_clock::time_point start,
                    std::int64_t num_tokens);

/// Whether the name of a metric says that it is a time or a speed, as Hugging Face's Trainer decides it.
bool is_speed(std::string_view name);

}  // namespace etude::inline v0
