#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// The values that an update may use besides the options of its rule.
struct RuleStep {
  double lr;
  double weight_decay;
  std::int64_t step;                    ///< the number of this update of these elements; 1 is the first
  std::optional<double> momentum = {};  ///< used instead of the option momentum or beta1 if set
};

namespace detail {

template <class Options>
double weight_decay_of(const Options& options) {
  if constexpr (requires { options.weight_decay; })
    return options.weight_decay;
  else
    return 0;
}

/// The options with the momentum of a schedule, if it is set. An option that is unset stays unset.
template <class Options>
Options with_momentum(Options options, std::optional<double> momentum) {
  if (!momentum) return options;
  if constexpr (requires { options.momentum; }) {
    options.momentum = *momentum;
  } else if constexpr (requires { options.beta1.has_value(); }) {
    if (options.beta1) options.beta1 = momentum;
  } else if constexpr (requires { options.beta1; }) {
    options.beta1 = *momentum;
  }
  return options;
}

/// The name of an optimizer: "Lion" for LionRule.
template <class Rule>
constexpr std::string_view rule_name() {
  std::string_view name = short_type_name<Rule>();
  if (name.ends_with("Rule")) name.remove_suffix(4);
  return name;
}

}  // namespace detail

}  // namespace etude::inline v0
