#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

/// `{split}_runtime` in seconds since `start`, `{split}_samples_per_second` and `{split}_steps_per_second`,
/// named and rounded as in Hugging Face's `speed_metrics`.
Metrics speed_metrics(const std::string& split, std::chrono::steady_clock::time_point start,
                      double num_samples, std::int64_t num_steps);

/// `{split}_runtime` in seconds since `start`, and `{split}_tokens_per_second`.
Metrics token_speed(const std::string& split, std::chrono::steady_clock::time_point start,
                    std::int64_t num_tokens);

/// True if a metric's name says that it is a time or a speed, by the rule of Hugging Face's Trainer.
bool is_speed(std::string_view name);

}  // namespace etude::inline v0
