#include "etude/study/distribution.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

/// Doubles represent all whole numbers up to this one exactly.
constexpr std::int64_t largest_exact = std::int64_t{1} << 53;

}  // namespace

double steps_of(const FloatRange& range) {
  return std::floor((range.high - range.low) / *range.step * (1 + 1e-12));
}

Numbers numbers_of(const Distribution& distribution) {
  Numbers numbers;
  if (const auto* range = std::get_if<FloatRange>(&distribution)) {
    numbers = {range->low, range->high, range->step.value_or(0), range->log};
    // The last step may end before `high`; and 0.3 / 0.1 is a little less than 3.
    if (range->step) numbers.high = range->low + steps_of(*range) * *range->step;
  } else {
    const auto& whole = std::get<IntRange>(distribution);
    numbers = {static_cast<double>(whole.low),
               static_cast<double>(whole.low + (whole.high - whole.low) / whole.step * whole.step),
               static_cast<double>(whole.step), whole.log};
  }
  numbers.low -= numbers.step / 2;
  numbers.high += numbers.step / 2;
  return numbers;
}

namespace {

/// True if JSON can represent all numbers in it.
bool is_finite(const nlohmann::ordered_json& json) {
  if (json.is_structured())
    return std::ranges::all_of(json, [](const auto& each) { return is_finite(each); });
  return !json.is_number_float() || std::isfinite(json.get<double>());
}

}  // namespace

std::string in_words(const Distribution& distribution) {
  return std::visit(
      Overloaded{[](const Choices& choices) {
                   std::vector<std::string> texts;
                   for (const auto& choice : choices.choices) texts.push_back(choice.dump());
                   return fmt::format("one of {}", fmt::join(texts, ", "));
                 },
                 [](const auto& range) { return fmt::format("from {} to {}", range.low, range.high); }},
      distribution);
}

}  // namespace detail

void check_distribution(std::string_view name, const Distribution& distribution) {
  const auto wrong = [&](std::string_view what) {
    return ArgumentError(fmt::format("{} is {}: {}", name, detail::in_words(distribution), what));
  };
  std::visit(detail::Overloaded{
                 [&](const Choices& choices) {
                   if (choices.choices.empty()) throw wrong("must have at least one choice");
                   for (const auto& choice : choices.choices)
                     if (!detail::is_finite(choice)) throw wrong("choices must have finite numbers");
                 },
                 [&](const FloatRange& range) {
                   if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low > range.high)
                     throw wrong("must be finite, and not end before it begins");
                   if (range.log && range.low <= 0) throw wrong("must be positive for a logarithmic range");
                   if (range.log && range.step) throw wrong("must have no step if it is logarithmic");
                   if (range.step && !(*range.step > 0)) throw wrong("must have a positive step");
                 },
                 [&](const IntRange& range) {
                   if (range.low > range.high) throw wrong("must not end before it begins");
                   if (range.low < -detail::largest_exact || range.high > detail::largest_exact)
                     throw wrong("must be from -2^53 to 2^53, which doubles have exactly");
                   if (range.log && range.low < 1) throw wrong("must be positive for a logarithmic range");
                   if (range.log && range.step != 1)
                     throw wrong("must have a step of 1 if it is logarithmic");
                   if (range.step < 1) throw wrong("must have a step of at least 1");
                 }},
             distribution);
}

bool is_single(const Distribution& distribution) {
  return std::visit(
      detail::Overloaded{[](const Choices& choices) { return choices.choices.size() == 1; },
                         [](const FloatRange& range) {
                           return range.low == range.high ||
                                  (range.step && range.high - range.low < *range.step);
                         },
                         [](const IntRange& range) { return range.high - range.low < range.step; }},
      distribution);
}

double to_number(std::string_view name, const Distribution& distribution,
                 const nlohmann::ordered_json& value) {
  const auto wrong = [&] {
    return ArgumentError(
        fmt::format("{} is {}: must be {}", name, value.dump(), detail::in_words(distribution)));
  };
  if (const auto* choices = std::get_if<Choices>(&distribution)) {
    const auto found = std::ranges::find(choices->choices, value);
    if (found == choices->choices.end()) throw wrong();
    return static_cast<double>(found - choices->choices.begin());
  }
  if (!value.is_number()) throw wrong();
  const auto number = value.get<double>();
  const bool fits = std::visit(
      detail::Overloaded{[](const Choices&) { return false; },
                         [&](const FloatRange& range) { return number >= range.low && number <= range.high; },
                         [&](const IntRange& range) {
                           return number == std::floor(number) && number >= static_cast<double>(range.low) &&
                                  number <= static_cast<double>(range.high);
                         }},
      distribution);
  if (!fits) throw wrong();
  return number;
}

nlohmann::ordered_json from_number(const Distribution& distribution, double number) {
  return std::visit(
      detail::Overloaded{
          [&](const Choices& choices) {
            const auto last = static_cast<double>(choices.choices.size() - 1);
            return choices.choices[static_cast<std::size_t>(std::clamp(std::round(number), 0.0, last))];
          },
          [&](const FloatRange& range) {
            if (range.step) {
              const double steps = std::round((number - range.low) / *range.step);
              number = range.low + std::clamp(steps, 0.0, detail::steps_of(range)) * *range.step;
            }
            return nlohmann::ordered_json(std::clamp(number, range.low, range.high));
          },
          [&](const IntRange& range) {
            const auto steps =
                std::llround((number - static_cast<double>(range.low)) / static_cast<double>(range.step));
            const auto most = (range.high - range.low) / range.step;
            return nlohmann::ordered_json(range.low + std::clamp<std::int64_t>(steps, 0, most) * range.step);
          }},
      distribution);
}

nlohmann::ordered_json distribution_json(const Distribution& distribution) {
  return std::visit(
      detail::Overloaded{
          [](const Choices& choices) {
            return nlohmann::ordered_json{{"name", "CategoricalDistribution"},
                                          {"attributes", {{"choices", choices.choices}}}};
          },
          [](const FloatRange& range) {
            return nlohmann::ordered_json{
                {"name", "FloatDistribution"},
                {"attributes",
                 {{"low", range.low},
                  {"high", range.high},
                  {"log", range.log},
                  {"step", range.step ? nlohmann::ordered_json(*range.step) : nlohmann::ordered_json()}}}};
          },
          [](const IntRange& range) {
            return nlohmann::ordered_json{
                {"name", "IntDistribution"},
                {"attributes",
                 {{"low", range.low}, {"high", range.high}, {"log", range.log}, {"step", range.step}}}};
          }},
      distribution);
}

Distribution distribution_of(const nlohmann::ordered_json& json) try {
  const auto& name = json.at("name").get_ref<const std::string&>();
  const auto& attributes = json.at("attributes");
  Distribution result;
  const auto real = [&](const char* of) { return attributes.at(of).get<double>(); };
  const auto whole = [&](const char* of) { return from_json_value<std::int64_t>(attributes.at(of)); };
  if (name == "CategoricalDistribution") {
    result = Choices{attributes.at("choices").get<std::vector<nlohmann::ordered_json>>()};
  } else if (name == "IntDistribution") {
    result = IntRange{whole("low"), whole("high"), attributes.at("log").get<bool>(), whole("step")};
  } else if (name == "FloatDistribution") {
    const bool has_step = !attributes.at("step").is_null();
    result = FloatRange{real("low"), real("high"), attributes.at("log").get<bool>(),
                        has_step ? std::optional(real("step")) : std::nullopt};
  } else if (name == "UniformDistribution" || name == "LogUniformDistribution") {
    // This name and the next are from Optuna 2; Optuna still reads them.
    result = FloatRange{real("low"), real("high"), name == "LogUniformDistribution"};
  } else if (name == "DiscreteUniformDistribution") {
    result = FloatRange{real("low"), real("high"), false, real("q")};
  } else if (name == "IntUniformDistribution" || name == "IntLogUniformDistribution") {
    result = IntRange{whole("low"), whole("high"), name == "IntLogUniformDistribution", whole("step")};
  } else {
    throw ArgumentError(
        fmt::format("the distribution is a {}: must be a FloatDistribution, IntDistribution or "
                    "CategoricalDistribution",
                    name));
  }
  check_distribution("the distribution", result);
  return result;
} catch (const nlohmann::ordered_json::exception& error) {
  throw ArgumentError(fmt::format("{} isn't Optuna's JSON of a distribution: {}", json.dump(), error.what()));
}

}  // namespace etude::inline v0
