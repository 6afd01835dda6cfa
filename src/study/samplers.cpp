#include "etude/study/samplers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/random/sobol.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Maps a place from 0 to 1 to a distribution's value, on a logarithmic scale if the distribution is.
double value_at(const Distribution& distribution, double place) {
  if (const auto* choices = std::get_if<Choices>(&distribution)) {
    const auto count = choices->choices.size();
    return static_cast<double>(
        std::min(static_cast<std::size_t>(place * static_cast<double>(count)), count - 1));
  }
  const auto [low, high, step, is_log] = numbers_of(distribution);
  const double value =
      is_log ? std::exp(std::log(low) + place * std::log(high / low)) : low + place * (high - low);
  return from_number(distribution, value).get<double>();
}

}  // namespace

}  // namespace detail

double RandomSampler::sample_independent(const Known& known, const std::string&,
                                         const Distribution& distribution) const {
  return detail::value_at(distribution, known.random.uniform());
}

GridSampler::GridSampler(std::vector<Values> values) : values_(std::move(values)) {
  for (const auto& [name, each] : values_)
    if (each.empty())
      throw ArgumentError(fmt::format("the grid has no value of {}: must have at least one", name));
}

std::optional<std::int64_t> GridSampler::most_trials() const {
  constexpr std::int64_t most = std::int64_t{1} << 53;
  std::int64_t product = 1;
  for (const auto& [name, each] : values_) {
    const auto size = static_cast<std::int64_t>(each.size());
    product = product > most / size ? most : product * size;
  }
  return product;
}

double GridSampler::sample_independent(const Known& known, const std::string& name,
                                       const Distribution& distribution) const {
  auto left = static_cast<std::size_t>(known.number);
  for (auto entry = values_.rbegin(); entry != values_.rend(); ++entry) {
    const auto& [its_name, values] = *entry;
    if (its_name == name) return to_number(name, distribution, values[left % values.size()]);
    left /= values.size();
  }
  throw ArgumentError(fmt::format("{} isn't in the grid", name));
}

std::map<std::string, double> QMCSampler::sample_relative(const Known& known) const {
  const auto space = intersection_search_space(known.trials);
  std::map<std::string, double> values;
  if (space.empty()) return values;
  boost::random::sobol sequence(space.size());
  sequence.discard(static_cast<std::uintmax_t>(known.number) * space.size());
  RandomNumbers shifts(seed_);
  for (const auto& [name, distribution] : space) {
    const auto number = sequence() ^ shifts.bits();  // a digital shift preserves the sequence's uniformity
    values[name] = detail::value_at(distribution, static_cast<double>(number >> 11) * 0x1p-53);
  }
  return values;
}

namespace detail {

namespace {

/// The number of trials that count as good.
std::size_t good_trials(std::size_t trials) { return std::min<std::size_t>((trials + 9) / 10, 25); }

/// Smaller is better: complete trials by value, then pruned trials, those that got further first, then
/// running ones, which count as bad so that other workers don't try the same values.
std::tuple<int, double, double> rank_of(const FrozenTrial& trial, StudyDirection direction) {
  constexpr double worst = std::numeric_limits<double>::infinity();
  const auto loss = [&](double value) {
    if (std::isnan(value)) return worst;
    return direction == StudyDirection::minimize ? value : -value;
  };
  if (trial.state == TrialState::complete) return {0, loss(trial.values.at(0)), 0};
  if (trial.state == TrialState::running) return {2, 0, 0};
  if (trial.intermediate_values.empty()) return {1, 1, 0};
  const auto& [step, value] = *trial.intermediate_values.rbegin();
  return {1, -static_cast<double>(step), loss(value)};
}

}  // namespace

}  // namespace detail

bool TPESampler::is_starting(const Known& known) const {
  return std::ranges::count_if(known.trials, [](const auto& trial) {
           return trial.state == TrialState::complete || trial.state == TrialState::pruned;
         }) < options_.n_startup_trials;
}

std::map<std::string, double> TPESampler::sample_relative(const Known& known) const {
  const auto space = intersection_search_space(known.trials);
  if (space.empty() || is_starting(known)) return {};
  return sample(known, space);
}

double TPESampler::sample_independent(const Known& known, const std::string& name,
                                      const Distribution& distribution) const {
  if (is_starting(known) || is_single(distribution))
    return detail::value_at(distribution, known.random.uniform());
  return sample(known, {{name, distribution}}).at(name);
}

std::map<std::string, double> TPESampler::sample(const Known& known,
                                                 const std::map<std::string, Distribution>& space) const {
  std::vector<const FrozenTrial*> ranked;
  std::size_t finished = 0;
  for (const auto& trial : known.trials) {
    if (trial.state == TrialState::fail || trial.state == TrialState::waiting) continue;
    ranked.push_back(&trial);
    if (trial.state != TrialState::running) ++finished;
  }
  std::ranges::stable_sort(ranked, {},
                           [&](const auto* trial) { return detail::rank_of(*trial, known.direction); });
  const auto good = detail::good_trials(finished);
  const auto observed = [&](std::size_t begin, std::size_t end) {
    std::vector<const FrozenTrial*> chosen(ranked.begin() + static_cast<std::ptrdiff_t>(begin),
                                           ranked.begin() + static_cast<std::ptrdiff_t>(end));
    std::ranges::sort(chosen, {}, [](const auto* trial) { return trial->number; });
    std::vector<detail::Point> points;
    for (const auto* trial : chosen) {
      detail::Point point;
      for (const auto& [name, distribution] : space)
        if (const auto found = trial->params.find(name); found != trial->params.end()) point.insert(*found);
      if (point.size() == space.size()) points.push_back(std::move(point));
    }
    return points;
  };
  const detail::ParzenEstimator better(space, observed(0, good)), worse(space, observed(good, ranked.size()));
  detail::Point best;
  double most = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < options_.n_ei_candidates; ++i) {
    auto candidate = better.sample(known.random);
    const double gain = better.log_density(candidate) - worse.log_density(candidate);
    if (best.empty() || gain > most) {
      most = gain;
      best = std::move(candidate);
    }
  }
  return best;
}

}  // namespace etude::inline v0
