#include "etude/study/pruners.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The percentile of sorted values with linear interpolation, as in numpy.percentile.
double percentile_of(const std::vector<double>& sorted, double percentile) {
  const double place = percentile / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

void check_at_least(std::string_view name, std::int64_t value, std::int64_t least) {
  if (value < least) throw ArgumentError(fmt::format("{} is {}: must be at least {}", name, value, least));
}

std::string rung_name(std::int64_t rung) { return fmt::format("completed_rung_{}", rung); }

}  // namespace

}  // namespace detail

PercentilePruner::PercentilePruner(const Options& options) : options_(options) {
  if (!(options.percentile >= 0 && options.percentile <= 100))
    throw ArgumentError(fmt::format("percentile is {}: must be from 0 to 100", options.percentile));
  detail::check_at_least("n_startup_trials", options.n_startup_trials, 0);
  detail::check_at_least("n_warmup_steps", options.n_warmup_steps, 0);
  detail::check_at_least("interval_steps", options.interval_steps, 1);
  detail::check_at_least("n_min_trials", options.n_min_trials, 1);
}

Pruner::Verdict PercentilePruner::judge(const std::vector<FrozenTrial>& trials, const FrozenTrial& trial,
                                        StudyDirection direction) const {
  const bool is_smaller_better = direction == StudyDirection::minimize;
  const auto step = trial.intermediate_values.rbegin()->first;
  if (step < options_.n_warmup_steps) return {};
  // Decides once in each interval, at the first value reported in it.
  const auto interval_of = [&](std::int64_t at) {
    return (at - options_.n_warmup_steps) / options_.interval_steps;
  };
  const auto before = std::next(trial.intermediate_values.rbegin());
  if (before != trial.intermediate_values.rend() && before->first >= options_.n_warmup_steps &&
      interval_of(before->first) == interval_of(step))
    return {};

  std::int64_t complete = 0;
  std::vector<double> others;
  for (const auto& other : trials) {
    if (other.state != TrialState::complete) continue;
    ++complete;
    if (const auto found = other.intermediate_values.find(step); found != other.intermediate_values.end())
      others.push_back(found->second);
  }
  if (complete == 0 || complete < options_.n_startup_trials) return {};

  double best = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [at, value] : trial.intermediate_values)
    if (std::isnan(best) || (is_smaller_better ? value < best : value > best)) best = value;
  if (std::isnan(best)) return {.prune = true};
  if (static_cast<std::int64_t>(others.size()) < options_.n_min_trials) return {};
  std::erase_if(others, [](double value) { return std::isnan(value); });
  if (others.empty()) return {};
  std::ranges::sort(others);
  const double limit =
      detail::percentile_of(others, is_smaller_better ? options_.percentile : 100 - options_.percentile);
  return {.prune = is_smaller_better ? best > limit : best < limit};
}

SuccessiveHalvingPruner::SuccessiveHalvingPruner(const Options& options) : options_(options) {
  if (options.min_resource) detail::check_at_least("min_resource", *options.min_resource, 1);
  detail::check_at_least("reduction_factor", options.reduction_factor, 2);
  detail::check_at_least("min_early_stopping_rate", options.min_early_stopping_rate, 0);
}

Pruner::Verdict SuccessiveHalvingPruner::judge(const std::vector<FrozenTrial>& trials,
                                               const FrozenTrial& trial, StudyDirection direction) const {
  const auto& [step, value] = *trial.intermediate_values.rbegin();
  auto first = options_.min_resource;
  if (!first)
    for (const auto& other : trials)
      if (other.state == TrialState::complete && !other.intermediate_values.empty())
        first =
            std::max({first.value_or(1), other.intermediate_values.rbegin()->first / 100, std::int64_t{1}});
  Verdict verdict;
  if (!first) return verdict;

  std::int64_t rung = 0;
  while (trial.system_attrs.contains(detail::rung_name(rung))) ++rung;
  for (;; ++rung) {
    double limit = static_cast<double>(*first);
    for (std::int64_t i = 0; i < rung + options_.min_early_stopping_rate; ++i)
      limit *= static_cast<double>(options_.reduction_factor);
    if (static_cast<double>(step) < limit) return verdict;
    verdict.prune = true;
    if (std::isnan(value)) return verdict;
    const auto name = detail::rung_name(rung);
    verdict.notes[name] = value;
    std::vector<double> competing{value};
    for (const auto& other : trials)
      if (other.number != trial.number && other.system_attrs.contains(name) &&
          other.system_attrs[name].is_number())
        competing.push_back(other.system_attrs[name].template get<double>());
    std::ranges::sort(competing);
    if (direction == StudyDirection::maximize) std::ranges::reverse(competing);
    // A trial can't wait for others, so among the first few, the best so far continues.
    const auto promoted =
        std::max<std::size_t>(competing.size() / static_cast<std::size_t>(options_.reduction_factor), 1);
    const double worst = competing[promoted - 1];
    if (direction == StudyDirection::minimize ? value > worst : value < worst) return verdict;
    verdict.prune = false;
  }
}

}  // namespace etude::inline v0
