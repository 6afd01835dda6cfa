#include "etude/study/parzen_estimator.hpp"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

namespace etude::inline v0::detail {

double normal_mass(double a, double b) {
  if (a > 0) return normal_mass(-b, -a);
  const boost::math::normal_distribution<> normal;
  return cdf(normal, b) - cdf(normal, a);
}

namespace {

// Below this z, the mass of a normal distribution is close to the smallest double.
constexpr double normal_tail = -36;

/// The logarithm of `normal_mass`.
double log_normal_mass(double a, double b) {
  if (a > 0) return log_normal_mass(-b, -a);
  if (b > normal_tail) return std::log(normal_mass(a, b));
  const auto log_cdf = [](double z) {
    const double w = 1 / (z * z);
    return -z * z / 2 - std::log(-z * std::sqrt(2 * std::numbers::pi)) +
           std::log1p(w * (-1 + w * (3 + w * (-15 + w * 105))));
  };
  return log_cdf(b) + std::log1p(-std::exp(log_cdf(a) - log_cdf(b)));
}

/// The quantile of a standard normal truncated to a <= z <= b, at `place` from 0 to 1.
double normal_at(double a, double b, double place) {
  if (a > 0) return -normal_at(-b, -a, 1 - place);
  double z = 0;
  if (b > normal_tail) {
    const boost::math::normal_distribution<> normal;
    const double below = cdf(normal, a), rank = below + place * (cdf(normal, b) - below);
    z = rank > 0 && rank < 1 ? quantile(normal, rank) : rank <= 0 ? a : b;
  } else {
    z = b - std::log(place + (1 - place) * std::exp(b * (b - a))) / b;  // in the far tail, nearly exponential
  }
  return std::clamp(z, a, b);
}

/// Weights of the observations, oldest first, and of the prior at the end; they sum to 1.
std::vector<double> kernel_weights(std::size_t observations) {
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

}  // namespace

ParzenEstimator::Dimension::Dimension(const std::string& its_name, const Distribution& its_distribution,
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
  const auto numbers = numbers_of(distribution);
  low = numbers.low, high = numbers.high, step = numbers.step, is_log = numbers.is_log;
  if (is_log) low = std::log(low), high = std::log(high);
  for (const auto& point : observations) means.push_back(is_log ? std::log(point.at(name)) : point.at(name));
  set_widths();
  means.push_back((low + high) / 2);
  widths.push_back(high - low);
  for (std::size_t i = 0; i < means.size(); ++i) {
    scales.push_back(-log_normal_mass((low - means[i]) / widths[i], (high - means[i]) / widths[i]));
    if (step == 0) scales.back() -= std::log(widths[i] * std::sqrt(2 * std::numbers::pi));
  }
}

void ParzenEstimator::Dimension::set_widths() {
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
    // The ends of the range aren't observations, so they count as neighbours only of a lone observation.
    if (n > 1 && i == 0) width = above;
    if (n > 1 && i + 1 == n) width = below;
    widths[order[i]] = std::clamp(width, least, most);
  }
}

double ParzenEstimator::Dimension::sample(std::size_t kernel, RandomNumbers& random) const {
  if (!frequencies.empty()) return static_cast<double>(random.index(frequencies[kernel]));
  const double mean = means[kernel], width = widths[kernel];
  double value = mean + width * normal_at((low - mean) / width, (high - mean) / width, random.uniform());
  if (is_log) value = std::exp(value);
  return from_number(distribution, value).get<double>();
}

void ParzenEstimator::Dimension::add_log_densities(double value, std::vector<double>& sums) const {
  const auto scaled = [&](double at) { return is_log ? std::log(at) : at; };
  const double begin = scaled(value - step / 2), end = scaled(value + step / 2);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!frequencies.empty())
      sums[i] += std::log(frequencies[i][static_cast<std::size_t>(value)]);
    else if (step > 0)
      sums[i] += log_normal_mass((begin - means[i]) / widths[i], (end - means[i]) / widths[i]) + scales[i];
    else
      sums[i] += scales[i] - std::pow((begin - means[i]) / widths[i], 2) / 2;
  }
}

ParzenEstimator::ParzenEstimator(const std::map<std::string, Distribution>& space,
                                 const std::vector<Point>& observations)
    : weights_(kernel_weights(observations.size())) {
  for (const auto& [name, distribution] : space) dimensions_.emplace_back(name, distribution, observations);
}

Point ParzenEstimator::sample(RandomNumbers& random) const {
  const auto kernel = random.index(weights_);
  Point point;
  for (const auto& dimension : dimensions_) point[dimension.name] = dimension.sample(kernel, random);
  return point;
}

double ParzenEstimator::log_density(const Point& point) const {
  std::vector<double> parts;
  for (const double weight : weights_) parts.push_back(std::log(weight));
  for (const auto& dimension : dimensions_) dimension.add_log_densities(point.at(dimension.name), parts);
  const double most = *std::ranges::max_element(parts);
  if (!std::isfinite(most)) return most;
  double sum = 0;
  for (const double part : parts) sum += std::exp(part - most);
  return most + std::log(sum);
}

}  // namespace etude::inline v0::detail
