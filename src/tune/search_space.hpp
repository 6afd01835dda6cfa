#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/tune/hyperparameter_search.hpp"

namespace etude::inline v0::detail {

/// Records the hyperparameters that a space asks for, and checks them before any training.
class SpaceTrial final : public Trial {
 public:
  SpaceTrial(Trial& trial, const std::vector<SearchField>& fields) : trial_(trial), fields_(fields) {}

  std::int64_t number() const override { return trial_.number(); }
  nlohmann::ordered_json suggest(const std::string& name, const Distribution& distribution) override {
    const auto& field = find_field(fields_, name);
    check_range(field, distribution);
    auto value = trial_.suggest(name, distribution);
    field.set(value);
    chosen_[name] = value;
    return value;
  }
  /// The values whose names are fields of a struct.
  const nlohmann::ordered_json& chosen() const { return chosen_; }
  void report(double value, std::int64_t step) override { trial_.report(value, step); }
  bool should_prune() override { return trial_.should_prune(); }
  void set_user_attr(const std::string& name, const nlohmann::ordered_json& value) override {
    trial_.set_user_attr(name, value);
  }
  FrozenTrial frozen() const override { return trial_.frozen(); }

 private:
  Trial& trial_;
  const std::vector<SearchField>& fields_;
  nlohmann::ordered_json chosen_ = nlohmann::ordered_json::object();
};

inline bool any_is_searched(const std::vector<SearchField>& fields) {
  return std::ranges::any_of(fields, [](const auto& field) { return field.doc.searched.is_searched; });
}

/// Hugging Face's default space.
inline void suggest_default(Trial& trial) {
  trial.suggest_float("learning_rate", {.low = 1e-6, .high = 1e-4, .log = true});
  trial.suggest_int("num_train_epochs", {.low = 1, .high = 5});
  trial.suggest_int("seed", {.low = 1, .high = 40});
  trial.suggest_categorical<std::int64_t>("per_device_train_batch_size", {4, 8, 16, 32, 64});
}

/// Lists all values of a distribution. Throws ArgumentError if there are too many.
inline std::vector<nlohmann::ordered_json> grid_values(const std::string& name,
                                                       const Distribution& distribution) {
  if (const auto* choices = std::get_if<Choices>(&distribution)) return choices->choices;
  check_distribution(name, distribution);
  constexpr double most = 1e6;
  const auto [low, high, step, is_log] = numbers_of(distribution);
  const double count = step > 0 ? std::round((high - low) / step) : most + 1;
  if (count > most) throw ArgumentError(fmt::format("sampler is grid: {} must have choices or a step", name));
  std::vector<nlohmann::ordered_json> values;
  // `low` is half a step below the first value.
  for (double i = 0.5; i < count; ++i) values.push_back(from_number(distribution, low + i * step));
  return values;
}

inline std::shared_ptr<const Sampler> make_sampler(const HyperparameterSearchOptions& options,
                                                   const std::vector<SearchField>& fields,
                                                   std::uint64_t seed) {
  if (options.custom_sampler) return options.custom_sampler;
  if (options.sampler == SearchSampler::random) return std::make_shared<RandomSampler>();
  if (options.sampler == SearchSampler::qmc) return std::make_shared<QMCSampler>(seed);
  if (options.sampler == SearchSampler::tpe) return std::make_shared<TPESampler>();
  std::vector<GridSampler::Values> grid;
  for (const auto& [name, distribution] : options.hp_space.entries())
    grid.push_back({name, grid_values(name, distribution)});
  if (!options.hp_space)
    for (const auto& field : fields)
      if (field.doc.searched.is_searched && field.doc.searched.condition.empty()) {
        const std::string name(field.field.name);
        grid.push_back({name, grid_values(name, searched_values(field))});
      }
  if (grid.empty())
    throw ArgumentError("sampler is grid: hp_space must be a list, or fields must be searched");
  return std::make_shared<GridSampler>(std::move(grid));
}

inline std::shared_ptr<const Pruner> make_pruner(const HyperparameterSearchOptions& options) {
  if (options.custom_pruner) return options.custom_pruner;
  if (options.pruner == SearchPruner::median) return std::make_shared<MedianPruner>();
  if (options.pruner == SearchPruner::percentile)
    return std::make_shared<PercentilePruner>(PercentilePruner::Options{.percentile = 100.0 / 3});
  if (options.pruner == SearchPruner::halving) return std::make_shared<SuccessiveHalvingPruner>();
  return nullptr;
}

}  // namespace etude::inline v0::detail
