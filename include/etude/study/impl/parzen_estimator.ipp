#pragma once

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/study/parzen_estimator.hpp"

namespace etude::inline v0::detail {

/// P(a <= z <= b) of a standard normal z, exact in both tails.
inline double normal_mass(double a, double b) {
  const boost::math::normal_distribution<> normal;
  if (a > 0) return cdf(complement(normal, a)) - cdf(complement(normal, b));
  return cdf(normal, b) - cdf(normal, a);
}

/// Weights of observations, the oldest first, and of the prior behind them; their sum is 1.
inline std::vector<double> kernel_weights(std::size_t observations) {
  constexpr std::size_t newest = 25;
  std::vector<double> weights(observations + 1, 1);
  if (observations > newest) {
    const auto older = observations - newest;
    const auto least = 1 / static_cast<double>(observations);
    for (std::size_t i = 0; i < older; ++i)
      weights[i] =
          older == 1 ? least : least + (1 - least) * static_cast<double>(i) / static_cast<double>(older - 1);
  }
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (auto& weight : weights) weight /= sum;
  return weights;
}

ETUDE_INLINE ParzenEstimator::Dimension::Dimension(const std::string& its_name,
                                                   const Distribution& its_distribution,
                                                   const std::vector<Point>& observations)
    : name(its_name), distribution(its_distribution) {
  if (const auto* choices = std::get_if<Choices>(&distribution)) {
    const auto count = choices->choices.size();
    const auto kernels = static_cast<double>(observations.size() + 1);
    for (const auto& point : observations) {
      std::vector<double> row(count, 1 / kernels);
      row[static_cast<std::size_t>(point.at(name))] += 1;
      for (auto& each : row) each /= 1 + static_cast<double>(count) / kernels;
      frequencies.push_back(std::move(row));
    }
    frequencies.emplace_back(count, 1 / static_cast<double>(count));
    return;
  }
  if (const auto* range = std::get_if<FloatRange>(&distribution)) {
    low = range->low, high = range->high, is_log = range->log, step = range->step.value_or(0);
  } else {
    const auto& whole = std::get<IntRange>(distribution);
    low = static_cast<double>(whole.low), high = static_cast<double>(whole.high);
    is_log = whole.log, step = static_cast<double>(whole.step);
  }
  low -= step / 2;
  high += step / 2;
  if (is_log) low = std::log(low), high = std::log(high);
  for (const auto& point : observations) means.push_back(is_log ? std::log(point.at(name)) : point.at(name));
  set_widths();
  means.push_back((low + high) / 2);
  widths.push_back(high - low);
}

ETUDE_INLINE void ParzenEstimator::Dimension::set_widths() {
  std::vector<std::size_t> order(means.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return means[i]; });
  widths.resize(means.size());
  const auto n = order.size();
  const double most = high - low, least = most / std::min(100.0, 2 + static_cast<double>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const double mean = means[order[i]];
    const double below = mean - (i > 0 ? means[order[i - 1]] : low);
    const double above = (i + 1 < n ? means[order[i + 1]] : high) - mean;
    double width = std::max(below, above);
    // The ends of the range aren't observations, so they count only for one that has no neighbour.
    if (n > 1 && i == 0) width = above;
    if (n > 1 && i + 1 == n) width = below;
    widths[order[i]] = std::clamp(width, least, most);
  }
}

ETUDE_INLINE double ParzenEstimator::Dimension::sample(std::size_t kernel, RandomNumbers& random) const {
  if (!frequencies.empty()) return static_cast<double>(random.index(frequencies[kernel]));
  const double mean = means[kernel], width = widths[kernel];
  const double a = (low - mean) / width, b = (high - mean) / width;
  const boost::math::normal_distribution<> normal;
  const double below = cdf(normal, a);
  const double rank = below + random.uniform() * normal_mass(a, b);
  double value = mean + width * (rank > 0 && rank < 1 ? quantile(normal, rank) : rank <= 0 ? a : b);
  value = std::clamp(value, low, high);
  if (is_log) value = std::exp(value);
  const auto rounded = from_number(distribution, value);
  return rounded.get<double>();
}

ETUDE_INLINE double ParzenEstimator::Dimension::log_density(std::size_t kernel, double value) const {
  if (!frequencies.empty()) return std::log(frequencies[kernel][static_cast<std::size_t>(value)]);
  const double mean = means[kernel], width = widths[kernel];
  const double whole = std::log(normal_mass((low - mean) / width, (high - mean) / width));
  if (step > 0) {
    const auto end = [&](double at) { return ((is_log ? std::log(at) : at) - mean) / width; };
    return std::log(normal_mass(end(value - step / 2), end(value + step / 2))) - whole;
  }
  const double z = ((is_log ? std::log(value) : value) - mean) / width;
  return -z * z / 2 - std::log(width * std::sqrt(2 * std::numbers::pi)) - whole;
}

ETUDE_INLINE ParzenEstimator::ParzenEstimator(const std::map<std::string, Distribution>& space,
                                              const std::vector<Point>& observations)
    : weights_(kernel_weights(observations.size())) {
  for (const auto& [name, distribution] : space) dimensions_.emplace_back(name, distribution, observations);
}

ETUDE_INLINE Point ParzenEstimator::sample(RandomNumbers& random) const {
  const auto kernel = random.index(weights_);
  Point point;
  for (const auto& dimension : dimensions_) point[dimension.name] = dimension.sample(kernel, random);
  return point;
}

ETUDE_INLINE double ParzenEstimator::log_density(const Point& point) const {
  std::vector<double> parts;
  for (std::size_t kernel = 0; kernel < weights_.size(); ++kernel) {
    parts.push_back(std::log(weights_[kernel]));
    for (const auto& dimension : dimensions_)
      parts.back() += dimension.log_density(kernel, point.at(dimension.name));
  }
  const double most = *std::ranges::max_element(parts);
  if (!std::isfinite(most)) return most;
  double sum = 0;
  for (const double part : parts) sum += std::exp(part - most);
  return most + std::log(sum);
}

}  // namespace etude::inline v0::detail
