#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace etude::inline v0 {

/// Real numbers from `low` to `high`, both included; with a `step`, only `low`, `low + step`, and so on.
struct FloatRange {
  double low = 0;
  double high = 1;
  bool log = false;  ///< uniform in the logarithm; not with a step
  std::optional<double> step = {};
  bool operator==(const FloatRange&) const = default;
};

/// Whole numbers from `low` to `high`, both included.
struct IntRange {
  std::int64_t low = 0;
  std::int64_t high = 1;
  bool log = false;  ///< uniform in the logarithm; only with a step of 1
  std::int64_t step = 1;
  bool operator==(const IntRange&) const = default;
};

/// Values of any JSON type, without an order; numbers must be finite.
struct Choices {
  std::vector<nlohmann::ordered_json> choices;
  bool operator==(const Choices&) const = default;
};

/// The values that a hyperparameter can have. Optuna has the same three.
using Distribution = std::variant<FloatRange, IntRange, Choices>;

/// Throws ArgumentError that names the hyperparameter if no value fits, if a range has both a logarithm and a
/// step, or if a logarithmic range has values that aren't positive.
void check_distribution(std::string_view name, const Distribution& distribution);

/// True if the distribution has only one value.
bool is_single(const Distribution& distribution);

/// Converts a value to the number that Optuna stores; for a choice, that is its index. For a value that the
/// distribution doesn't have, throws ArgumentError that names the hyperparameter and what is allowed.
double to_number(std::string_view name, const Distribution& distribution,
                 const nlohmann::ordered_json& value);

/// The value that a number stands for. A number between two steps is rounded.
nlohmann::ordered_json from_number(const Distribution& distribution, double number);

namespace detail {
/// Describes a distribution's values: "from 0.1 to 2", "one of 1, 2".
std::string in_words(const Distribution& distribution);
/// The number of steps from the first to the last value of a range with a step, immune to rounding.
double steps_of(const FloatRange& range);

/// The bounds between which a sampler draws a number.
struct Numbers {
  double low = 0, high = 0;  ///< half a step below the smallest and above the largest value
  double step = 0;
  bool is_log = false;
};
Numbers numbers_of(const Distribution& distribution);
}  // namespace detail

/// Convert a distribution to Optuna's JSON and back; the five distributions of Optuna 2 are read, too.
/// `distribution_of` throws ArgumentError for any other JSON, and for a distribution that isn't valid.
nlohmann::ordered_json distribution_json(const Distribution& distribution);
Distribution distribution_of(const nlohmann::ordered_json& json);

}  // namespace etude::inline v0
