#pragma once

#include <cstdint>
#include <string_view>

#include "etude/reflect/type_name.hpp"

namespace etude::inline v0 {

/// What an update may depend on besides the options of its rule.
struct RuleStep {
  double lr;
  double weight_decay;
  std::int64_t step;  ///< the number of this update of these elements; 1 is the first
};

namespace detail {

template <class Options>
double weight_decay_of(const Options& options) {
  if constexpr (requires { options.weight_decay; })
    return options.weight_decay;
  else
    return 0;
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
