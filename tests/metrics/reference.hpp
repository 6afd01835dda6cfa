#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/metrics/streaming_metric.hpp"
#include "metrics/reference_values.hpp"

namespace reference {

inline torch::Tensor tensor(const std::vector<double>& list, at::IntArrayRef shape,
                            torch::ScalarType dtype = torch::kDouble) {
  return torch::tensor(list, torch::kDouble).reshape(shape).to(dtype);
}
inline torch::Tensor tensor(const std::vector<std::int64_t>& list) {
  return torch::tensor(list, torch::kLong);
}

/// [60, 4]
inline torch::Tensor multi(torch::ScalarType dtype = torch::kDouble) {
  return tensor(multi_logits, {-1, 4}, dtype);
}
/// [50]
inline torch::Tensor binary(torch::ScalarType dtype = torch::kDouble) {
  return tensor(binary_logits, {-1}, dtype);
}

/// The result of `metric` over these examples, in batches of 7, the last one smaller.
template <class Metric>
etude::Metrics over(Metric metric, const torch::Tensor& predictions, const torch::Tensor& labels) {
  for (std::int64_t i = 0; i < labels.size(0); i += 7) {
    const auto end = std::min(i + 7, labels.size(0));
    metric.update(predictions.slice(0, i, end), labels.slice(0, i, end));
  }
  return metric.compute();
}

/// Checks that `value` equals the stored one; NaN equals NaN.
inline void check(double value, const std::string& name, double tolerance = 1e-9) {
  CAPTURE(name);
  const auto expected = values.at(name);
  CHECK(std::isnan(value) == std::isnan(expected));
  if (!std::isnan(expected)) CHECK(std::abs(value - expected) <= tolerance * (1 + std::abs(expected)));
}

/// Checks that `metrics` equal the numbers stored as "NAME 0", "NAME 1", ...
inline void check_each(const etude::Metrics& metrics, const std::string& name, double tolerance = 1e-9) {
  std::size_t i = 0;
  for (const auto& entry : metrics) check(entry.second, fmt::format("{} {}", name, i++), tolerance);
  CHECK_FALSE(values.contains(fmt::format("{} {}", name, i)));
  CHECK(i > 1);
}

}  // namespace reference
