#include "etude/study/importance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "etude/reflect/read_text.hpp"
#include "etude/study/parzen_estimator.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Divides a hyperparameter's values into a row of cells.
struct ImportanceGrid {
  std::size_t size = 0;
  bool is_log = false, is_choice = false;
  double low = 0, high = 0;  ///< in the logarithm if `is_log`

  /// Uses 50 cells, as Optuna does, or one for each value if there are fewer values.
  explicit ImportanceGrid(const Distribution& distribution) {
    constexpr double most = 50;
    if (const auto* choices = std::get_if<Choices>(&distribution)) {
      is_choice = true;
      size = choices->choices.size();
      return;
    }
    double step = 0, cells = most;
    if (const auto* real = std::get_if<FloatRange>(&distribution)) {
      low = real->low, high = real->high, is_log = real->log, step = real->step.value_or(0);
    } else {
      const auto& whole = std::get<IntRange>(distribution);
      low = static_cast<double>(whole.low), high = static_cast<double>(whole.high);
      is_log = whole.log, step = static_cast<double>(whole.step);
    }
    if (step > 0 && !is_log) {
      const bool is_real = std::holds_alternative<FloatRange>(distribution);
      const double steps =
          std::floor(is_real ? (high / step - low / step) * (1 + 1e-12) : (high - low) / step);
      high = is_real ? in_decimal(low + steps * step) : low + steps * step;
      cells = std::min(steps + 1, most);
    } else if (step > 0) {
      cells = std::min(std::ceil(std::log(high - low + 1) / std::log(2)) + 1, most);
    }
    size = low < high ? static_cast<std::size_t>(std::max(cells, 1.0)) : 1;
    if (is_log) low = std::log(low), high = std::log(high);
  }

  /// Rounds to 15 digits, because Optuna computes the last step in decimal.
  static double in_decimal(double value) {
    return read_number<double>(fmt::format("{:.15g}", value)).value_or(value);
  }

  std::size_t cell(double value) const {
    const auto last = static_cast<double>(size - 1), width = (high - low) / last;
    const double place =
        is_choice ? value : std::ceil(((is_log ? std::log(value) : value) - low) / width - 0.5);
    return place > 0 ? static_cast<std::size_t>(std::min(place, last)) : 0;
  }
};

/// The kernels' width by Scott's rule (1992), from the standard deviation or the interquartile range,
/// whichever is smaller.
double scott_width(const std::vector<std::size_t>& cells, const std::vector<double>& weights) {
  double sum = 0, mean = 0, variance = 0;
  std::vector<double> up_to;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    up_to.push_back(sum += weights[i]);
    mean += static_cast<double>(cells[i]) * weights[i];
  }
  mean /= sum;
  for (std::size_t i = 0; i < cells.size(); ++i)
    variance += std::pow(static_cast<double>(cells[i]) - mean, 2) * weights[i];
  variance /= std::max(1.0, sum - 1);
  const auto first = std::ranges::lower_bound(up_to, std::floor(sum / 4)) - up_to.begin();
  const auto third = std::ranges::upper_bound(up_to, std::floor(sum * 3 / 4)) - up_to.begin();
  const auto last = std::min(static_cast<std::size_t>(third), cells.size() - 1);
  const auto between =
      static_cast<double>(cells[last]) - static_cast<double>(cells[static_cast<std::size_t>(first)]);
  const double width = 1.059 * std::min(between / 1.34, std::sqrt(variance)) * std::pow(sum, -0.2);
  return std::max(width, 0.5 / 1.64);  // at least 90 % of a kernel's mass lies in its cell
}

/// Estimates the density of some trials' values over the cells: one kernel at each cell that has trials,
/// weighted by their number, and a wide kernel over all cells with weight 1.
std::vector<double> importance_density(const ImportanceGrid& grid, const std::vector<double>& values) {
  std::vector<double> counts(grid.size, 0), density(grid.size, 0);
  for (const double value : values) counts[grid.cell(value)] += 1;
  const auto total = static_cast<double>(values.size()) + 1;
  std::vector<std::size_t> cells;
  std::vector<double> weights;
  for (std::size_t i = 0; i < grid.size; ++i) {
    if (counts[i] == 0) continue;
    cells.push_back(i);
    weights.push_back(counts[i]);
  }
  const auto all = static_cast<double>(grid.size);
  if (grid.is_choice) {
    const double prior = 1 / static_cast<double>(cells.size() + 1);
    for (std::size_t i = 0; i < grid.size; ++i)
      density[i] = ((total - 1) * prior + counts[i]) / (1 + all * prior) / total + 1 / all / total;
    return density;
  }
  const double width = scott_width(cells, weights);
  const auto add = [&](double mean, double sigma, double weight) {
    const auto mass = [&](double from, double to) {
      return normal_mass((from - mean) / sigma, (to - mean) / sigma);
    };
    const double whole = mass(-0.5, all - 0.5);
    for (std::size_t i = 0; i < grid.size; ++i) {
      const auto at = static_cast<double>(i);
      density[i] += weight / total * mass(at - 0.5, at + 0.5) / whole;
    }
  };
  for (std::size_t i = 0; i < cells.size(); ++i) add(static_cast<double>(cells[i]), width, weights[i]);
  add((all - 1) / 2, all, 1);
  return density;
}

/// The trials in which a hyperparameter has the same range or choices.
struct ImportanceRegime {
  const Distribution* distribution = nullptr;
  std::vector<double> all = {}, best = {};
};

/// The weighted sum of the divergences of a hyperparameter's regimes. Each trial must have a finite value.
double importance_of(const std::string& name, const std::vector<const FrozenTrial*>& trials,
                     const std::set<const FrozenTrial*>& best) {
  std::map<std::string, ImportanceRegime> regimes;
  for (const auto* trial : trials) {
    const auto distribution = trial->distributions.find(name);
    const auto value = trial->params.find(name);
    if (distribution == trial->distributions.end() || value == trial->params.end()) continue;
    // Ranges that end between the same two steps count as the same.
    const ImportanceGrid grid(distribution->second);
    const auto key = grid.is_choice
                         ? distribution_json(distribution->second)
                               .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
                         : fmt::format("{} {} {} {} {}", distribution->second.index(), grid.low, grid.high,
                                       grid.is_log, grid.size);
    auto& regime = regimes[key];
    regime.distribution = &distribution->second;
    regime.all.push_back(value->second);
    if (best.contains(trial)) regime.best.push_back(value->second);
  }
  double importance = 0;
  for (const auto& [key, regime] : regimes) {
    const ImportanceGrid grid(*regime.distribution);
    if (grid.size < 2 || regime.best.empty()) continue;
    const double of_best = static_cast<double>(regime.best.size()) / static_cast<double>(best.size());
    const double of_all = static_cast<double>(regime.all.size()) / static_cast<double>(trials.size());
    const auto top = importance_density(grid, regime.best), local = importance_density(grid, regime.all);
    double divergence = 0;
    for (std::size_t i = 0; i < grid.size; ++i) {
      constexpr double least = 1e-12;
      divergence += (local[i] + least) * std::pow((top[i] + least) / (local[i] + least) - 1, 2);
    }
    importance += of_best * of_best / of_all * divergence;
  }
  return importance;
}

}  // namespace

}  // namespace detail

std::map<std::string, double> param_importances(const std::vector<FrozenTrial>& trials,
                                                StudyDirection direction, std::size_t objective) {
  std::map<std::string, double> importances;
  std::vector<const FrozenTrial*> complete;
  std::vector<double> losses;
  for (const auto& trial : trials) {
    if (trial.state != TrialState::complete) continue;
    for (const auto& [name, distribution] : trial.distributions) importances[name] = 0;
    if (objective >= trial.values.size() || !std::isfinite(trial.values[objective])) continue;
    complete.push_back(&trial);
    losses.push_back(direction == StudyDirection::minimize ? trial.values[objective]
                                                           : -trial.values[objective]);
  }
  if (complete.size() > 1) {
    auto ordered = losses;
    const auto last = static_cast<std::size_t>(std::ceil(0.1 * static_cast<double>(ordered.size()))) - 1;
    std::ranges::sort(ordered);
    std::set<const FrozenTrial*> best;
    for (std::size_t i = 0; i < complete.size(); ++i)
      if (losses[i] <= ordered[last]) best.insert(complete[i]);
    for (auto& [name, importance] : importances) importance = detail::importance_of(name, complete, best);
  }
  double sum = 0;
  for (const auto& [name, importance] : importances) sum += importance;
  for (auto& [name, importance] : importances)
    importance = sum > 0 ? importance / sum : 1 / static_cast<double>(importances.size());
  return importances;
}

}  // namespace etude::inline v0
