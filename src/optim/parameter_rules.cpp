#include "etude/optim/parameter_rules.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/read_options.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/key_values.hpp"
#include "etude/reflect/nearest.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The names of the modules that contain a parameter, from the outermost, then the parameter's name.
std::vector<std::string> names_around(std::string_view parameter) {
  std::vector<std::string> names;
  for (auto dot = parameter.find('.'); dot != parameter.npos; dot = parameter.find('.', dot + 1))
    names.emplace_back(parameter.substr(0, dot));
  names.emplace_back(parameter);
  return names;
}

}  // namespace

bool matches(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

std::vector<std::string> similar_names(std::string_view pattern, const std::vector<std::string>& names) {
  const auto trim = [&](char letter) { return letter == '*' || letter == '.'; };
  while (!pattern.empty() && trim(pattern.back())) pattern.remove_suffix(1);
  while (!pattern.empty() && trim(pattern.front())) pattern.remove_prefix(1);
  std::set<std::pair<std::size_t, std::string>> by_distance;
  for (const auto& name : names) {
    const auto last = std::string_view(name).substr(name.rfind('.') + 1);
    by_distance.emplace(std::min(edit_distance(pattern, name), edit_distance(pattern, last)), name);
  }
  std::vector<std::string> similar;
  for (const auto& [distance, name] : by_distance)
    if (similar.size() < 3) similar.push_back(name);
  return similar;
}

namespace {

/// Regroups parameters: `change` edits the options that a parameter inherits from its group, and parameters
/// with equal options form a group.
template <class Change>
std::vector<ParameterGroup> regrouped(std::vector<ParameterGroup> groups, Change change) {
  const auto before = std::move(groups);
  groups.clear();
  for (const auto& group : before)
    groups.push_back({.parameters = {}, .lr = group.lr, .weight_decay = group.weight_decay});
  for (std::size_t i = 0; i < before.size(); ++i)
    for (const auto& [name, tensor] : before[i].parameters) {
      ParameterGroup options{.parameters = {}, .lr = before[i].lr, .weight_decay = before[i].weight_decay};
      change(name, options);
      const auto has_options = [&](const ParameterGroup& group) {
        return group.lr == options.lr && group.weight_decay == options.weight_decay;
      };
      const auto found = has_options(before[i]) ? groups.begin() + static_cast<std::ptrdiff_t>(i)
                                                : std::ranges::find_if(groups, has_options);
      auto& group = found == groups.end() ? groups.emplace_back(std::move(options)) : *found;
      group.parameters.emplace_back(name, tensor);
    }
  return groups;
}

/// The name of the first numbered module in a parameter's name: "encoder.layer.3" of
/// "encoder.layer.3.norm.weight"; empty if there is none.
std::string_view numbered_layer(std::string_view parameter) {
  for (std::size_t begin = 0, dot = parameter.find('.'); dot != parameter.npos;
       begin = dot + 1, dot = parameter.find('.', begin)) {
    const auto part = parameter.substr(begin, dot - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == part.npos) return parameter.substr(0, dot);
  }
  return {};
}

}  // namespace

}  // namespace detail

bool names_parameter(const std::string& pattern, std::string_view parameter) {
  return std::ranges::any_of(detail::names_around(parameter),
                             [&](const std::string& name) { return detail::matches(pattern, name); });
}

ParameterRules read_parameter_rules(std::string_view text, std::string_view where) {
  ParameterRules rules;
  for (const auto& [pattern, values] : parse_named_key_values(text)) {
    auto& rule = rules.emplace_back(ParameterRule{.pattern = pattern});
    read_options(values, rule.settings, fmt::format("{}: {}", where, pattern));
  }
  return rules;
}

void check_parameter_rules(const ParameterRules& rules, const NamedTensors& parameters) {
  std::vector<std::string> found, names;
  for (const auto& [name, tensor] : parameters)
    std::ranges::move(detail::names_around(name), std::back_inserter(names));
  for (const auto& [pattern, settings] : rules) {
    for (const auto& fault : field_faults(settings))
      found.push_back(fmt::format("parameter_groups: {}: {}", pattern, fault));
    if (settings.lr && settings.lr_factor)
      found.push_back(
          fmt::format("parameter_groups: {}: lr and lr_factor are both set: must be one of them", pattern));
    if (std::ranges::none_of(parameters, [&each = pattern](const auto& parameter) {
          return names_parameter(each, parameter.first);
        }))
      found.push_back(
          fmt::format("parameter_groups has the pattern '{}': must name a parameter or module, such as {}",
                      pattern, fmt::join(detail::similar_names(pattern, names), ", ")));
  }
  detail::throw_faults(std::move(found));
}

std::vector<ParameterGroup> with_rules(std::vector<ParameterGroup> groups, const ParameterRules& rules,
                                       double lr) {
  return detail::regrouped(std::move(groups), [&](const std::string& name, ParameterGroup& options) {
    const auto given_lr = options.lr;
    for (const auto& [pattern, settings] : rules) {
      if (!names_parameter(pattern, name)) continue;
      if (settings.lr) options.lr = settings.lr;
      if (settings.lr_factor) options.lr = given_lr.value_or(lr) * *settings.lr_factor;
      if (settings.weight_decay) options.weight_decay = settings.weight_decay;
    }
  });
}

void freeze_by_rules(const ParameterRules& rules, const NamedTensors& parameters) {
  for (const auto& [name, tensor] : parameters) {
    std::optional<bool> frozen;
    for (const auto& [pattern, settings] : rules)
      if (settings.frozen && names_parameter(pattern, name)) frozen = settings.frozen;
    if (frozen) tensor.set_requires_grad(!*frozen);
  }
}

std::vector<std::size_t> layer_depths(const NamedTensors& parameters) {
  std::vector<std::size_t> depths;
  std::unordered_map<std::string_view, std::size_t> depth_of;  // by name of the layer
  std::size_t last = 0;                                        // the last parameter in a layer
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto layer = detail::numbered_layer(parameters[i].first);
    if (!layer.empty()) last = i;
    depths.push_back(layer.empty() ? depth_of.size()
                                   : depth_of.emplace(layer, depth_of.size() + 1).first->second);
  }
  if (depth_of.empty())
    throw ArgumentError(
        "layerwise_learning_rate_decay needs layers with numbers in their names, such as layers.0 or h.0: "
        "the model has none");
  for (std::size_t i = last + 1; i < depths.size(); ++i) ++depths[i];
  return depths;
}

std::vector<ParameterGroup> with_layerwise_decay(std::vector<ParameterGroup> groups,
                                                 const NamedTensors& parameters, double lr, double decay) {
  const auto depths = layer_depths(parameters);
  const auto deepest = std::ranges::max(depths);
  std::unordered_map<std::string_view, std::size_t> below;  // number of levels below the deepest parameters
  for (std::size_t i = 0; i < parameters.size(); ++i) below.emplace(parameters[i].first, deepest - depths[i]);
  return detail::regrouped(std::move(groups), [&](const std::string& name, ParameterGroup& options) {
    if (const auto steps = below.at(name); steps > 0)
      options.lr = options.lr.value_or(lr) * std::pow(decay, static_cast<double>(steps));
  });
}

}  // namespace etude::inline v0
