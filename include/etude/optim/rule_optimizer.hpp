#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/optim/elements.hpp"
#include "etude/optim/flat_optimizer.hpp"
#include "etude/optim/one_pass.hpp"
#include "etude/optim/rule_step.hpp"
#include "etude/reflect/check_fields.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

/// A value that a rule keeps for every element, and its initial value.
struct Moment {
  std::string_view name;
  double initial = 0;
  bool has_sign = true;  ///< false if it is never negative
};

/// A moment that only some options need. Where it isn't kept, `update` gets an `Absent` for it.
struct OptionalMoment {
  std::string_view name;
  bool is_kept;
  bool has_sign = true;
};
struct Absent {};

/// In `update`: true if an optional moment of this type (`decltype(moment)`) is kept.
template <class Value>
inline constexpr bool is_kept = !std::is_same_v<std::remove_cvref_t<Value>, Absent>;

namespace detail {
template <class Rule>
concept HasLibtorchKernel = requires { &Rule::has_libtorch_kernel; };

template <class Rule>
concept TakesSparseGradients =
    requires(const Rule& rule, const ParamGroup& group) { rule.sparse_fault(group); };
}  // namespace detail

/// An element-wise optimizer that a rule describes. `Rule` is a class with
/// - `Options`, an ETUDE_STRUCT with `lr`, perhaps `weight_decay`, and further options. Schedules may change
///   `momentum` or `beta1`; with `rounding` and `seed`, bfloat16 parameters are rounded; with `fused` false,
///   results match `torch::optim` bit for bit;
/// - `Options options`, and no other data that `update` needs;
/// - `moments(options)`, static: a tuple of Moment and OptionalMoment;
/// - `numbers(RuleStep)`: a std::array of the numbers that change from step to step;
/// - `update(value, gradient, moments..., numbers)`: sets the new value and moments of elements, written once
///   for all types of elements: short vectors on the CPU, tensors on any device, float32 copies of bfloat16.
///   All have the same type V, and so must local variables; V has + - * / (also with double), sqrt, abs,
///   sign, min, max and `if_positive(a, yes, no)`. A number is a double or, in a captured step, a V;
///
/// and, optionally,
/// - `check(options)`, static, which throws ArgumentError for options that don't fit together;
/// - `sparse_fault(group)`: see Optimizer; a rule that leaves elements without a gradient unchanged has it;
/// - `kept`, static: the names of numbers in `ParamGroup::kept`, 0 at first;
/// - `begin_step(group)`, which sets them before a step; `numbers(RuleStep, group)` then uses them;
/// - `average()`: the weights to evaluate and save are the parameters plus this times the first moment;
/// - `has_libtorch_kernel(values)`, static, and `update_by_libtorch(lists, RuleStep, gradient_scale)` for
///   LibTorch's fused kernel; also `has_capturable_kernel(values)`, static, if that takes `Lists::rate`.
template <class Rule>
class RuleOptimizer : public FlatOptimizer {
 public:
  using Options = typename Rule::Options;

  /// Throws ArgumentError for options out of range, and for weight decay if the options have none.
  explicit RuleOptimizer(const std::vector<ParameterGroup>& groups, const Options& options = {});

  OptimizerTraits traits() const override;

  std::string type() const override;

 protected:
  nlohmann::ordered_json group_options(std::size_t group) override {
    return with_numbers_of(group, to_json_value(options_));
  }

  std::string sparse_fault(const ParamGroup& group) const override;

  void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) override;
  std::vector<double> numbers(const ParamGroup& group, std::int64_t steps) override;
  void begin_groups(const std::vector<FlatRange>& ranges) override;
  std::optional<Average> average() const override;
  void update_by_libtorch(const Lists& lists, const ParamGroup& group, std::int64_t steps) override;

 private:
  static std::vector<FlatOptimizer::Moment> kept_moments(const Options& options);
  static Kernels kernels(const Options& options);
  static std::optional<RoundingOptions> rounding(const Options& options);

  template <auto kept, std::size_t size>
  bool update_in_lanes(const Range& range, const std::array<double, size>& numbers, std::int64_t steps) const;
  template <auto kept, std::size_t size>
  void update_by_operators(const Range& range, const std::array<double, size>& numbers) const;

  /// Gives the rule the group's options, and returns its numbers.
  auto rule_numbers(const ParamGroup& group, std::int64_t steps);

  /// The options of a group, whose momentum a schedule may have changed.
  Options options_of(const ParamGroup& group) const;

  Options options_;
  Rule rule_;
};

namespace detail {

/// Which moments are kept, as an array of bool.
template <auto kept>
struct Kept {};

template <auto kept>
inline constexpr auto number_kept = static_cast<std::size_t>(std::count(kept.begin(), kept.end(), true));

/// Calls `use` with the Kept of these moments; `known` says which of the first ones are kept.
template <class Use, class... Moments, class... Known>
void with_kept(const std::tuple<Moments...>& moments, const Use& use, Known... known) {
  constexpr std::size_t next = sizeof...(Known);
  if constexpr (next == sizeof...(Moments)) {
    use(Kept<std::array<bool, next>{Known::value...}>());
  } else if constexpr (std::is_same_v<std::tuple_element_t<next, std::tuple<Moments...>>, OptionalMoment>) {
    if (std::get<next>(moments).is_kept)
      with_kept(moments, use, known..., std::true_type());
    else
      with_kept(moments, use, known..., std::false_type());
  } else {
    with_kept(moments, use, known..., std::true_type());
  }
}

/// Calls `rule.update` with the kept moments in their places, and Absent in the others.
template <auto kept, class Rule, class V, class Numbers, class... Given>
void update_by_rule(const Rule& rule, V& value, const V& gradient, const Numbers& numbers, Given&... given) {
  const std::tuple<Given&...> all(given...);
  const auto place = [&]<std::size_t i>(std::integral_constant<std::size_t, i>) -> decltype(auto) {
    if constexpr (kept[i])
      return std::get<static_cast<std::size_t>(std::count(kept.begin(), kept.begin() + i, true))>(all);
    else
      return Absent();
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    rule.update(value, gradient, place(std::integral_constant<std::size_t, I>())..., numbers);
  }
  (std::make_index_sequence<kept.size()>());
}

/// The moments that are kept.
template <class... Moments>
std::vector<Moment> kept_moments(const std::tuple<Moments...>& moments) {
  std::vector<Moment> result;
  const auto add = [&](const auto& moment) {
    if constexpr (std::is_same_v<decltype(moment), const OptionalMoment&>) {
      if (moment.is_kept) result.push_back({.name = moment.name, .has_sign = moment.has_sign});
    } else {
      result.push_back(moment);
    }
  };
  std::apply([&](const auto&... each) { (add(each), ...); }, moments);
  return result;
}

/// The update of `rule` as `one_pass` takes it.
template <auto kept, class Rule, std::size_t size>
auto kernel_of(const Rule& rule, const std::array<double, size>& numbers, double gradient_scale) {
  // A new rule lacks the results that `rule` has cached, so a kernel can keep all of it in registers.
  return [fresh = Rule{rule.options}, numbers, gradient_scale](auto& value, auto gradient, auto&... moments) {
    gradient = gradient * gradient_scale;
    update_by_rule<kept>(fresh, value, gradient, numbers, moments...);
  };
}

/// Updates tensors with LibTorch's operators.
template <auto kept, class Rule, class Numbers>
void update_by_operators(const Rule& rule, const torch::Tensor& values, const torch::Tensor& gradients,
                         const std::vector<torch::Tensor>& moments, const Numbers& numbers) {
  Elements value = Elements::stored_in(values);
  const Elements gradient(gradients);
  [&]<std::size_t... M>(std::index_sequence<M...>) {
    std::array<Elements, sizeof...(M)> state{Elements::stored_in(moments[M])...};
    update_by_rule<kept>(rule, value, gradient, numbers, state[M]...);
    (state[M].store(), ...);
  }
  (std::make_index_sequence<number_kept<kept>>());
  value.store();
}

}  // namespace detail

template <class Rule>
RuleOptimizer<Rule>::RuleOptimizer(const std::vector<ParameterGroup>& groups, const Options& options)
    : FlatOptimizer(groups, options.lr, detail::weight_decay_of(options), kept_moments(options),
                    kernels(options), rounding(options)),
      options_(options),
      rule_{options} {
  detail::check_fields(options);
  if constexpr (requires { Rule::check(options); }) Rule::check(options);
  if constexpr (!requires { options.weight_decay; } && !detail::TakesSparseGradients<Rule>)
    for (const ParamGroup& group : groups_) detail::refuse_weight_decay(group, detail::rule_name<Rule>());
  if constexpr (requires { Rule::kept; })
    for (std::size_t i = 0; i < groups_.size(); ++i)
      for (const char* name : Rule::kept) given_[i][name] = groups_[i].kept[name] = 0;
}

template <class Rule>
OptimizerTraits RuleOptimizer<Rule>::traits() const {
  OptimizerTraits traits = FlatOptimizer::traits();
  traits.takes_sparse_gradients = detail::TakesSparseGradients<Rule>;
  return traits;
}

template <class Rule>
std::string RuleOptimizer<Rule>::type() const {
  return std::string(detail::rule_name<Rule>());
}

template <class Rule>
std::string RuleOptimizer<Rule>::sparse_fault(const ParamGroup& group) const {
  if constexpr (detail::TakesSparseGradients<Rule>)
    return rule_.sparse_fault(group);
  else
    return FlatOptimizer::sparse_fault(group);
}

template <class Rule>
std::vector<double> RuleOptimizer<Rule>::numbers(const ParamGroup& group, std::int64_t steps) {
  const auto numbers = rule_numbers(group, steps);
  return {numbers.begin(), numbers.end()};
}

template <class Rule>
auto RuleOptimizer<Rule>::rule_numbers(const ParamGroup& group, std::int64_t steps) {
  rule_.options = options_of(group);
  const RuleStep step{group.lr, group.weight_decay, steps};
  if constexpr (requires { rule_.numbers(step, group); })
    return rule_.numbers(step, group);
  else
    return rule_.numbers(step);
}

template <class Rule>
void RuleOptimizer<Rule>::begin_groups(const std::vector<FlatRange>& ranges) {
  if constexpr (requires(ParamGroup & group) { rule_.begin_step(group); })
    for (auto range = ranges.begin(); range != ranges.end(); ++range)
      if (std::none_of(ranges.begin(), range, [&](const auto& other) { return other.group == range->group; }))
        rule_.begin_step(groups_[range->group]);
}

template <class Rule>
std::optional<FlatOptimizer::Average> RuleOptimizer<Rule>::average() const {
  if constexpr (requires { rule_.average(); })
    return Average{0, rule_.average()};
  else
    return std::nullopt;
}

template <class Rule>
void RuleOptimizer<Rule>::update_range(const Range& range, const ParamGroup& group, std::int64_t steps) {
  const auto numbers = rule_numbers(group, steps);
  detail::with_kept(
      Rule::moments(options_), [&]<auto kept>(detail::Kept<kept>) {
        if (!in_one_pass() || range.numbers.defined() || !update_in_lanes<kept>(range, numbers, steps))
          update_by_operators<kept>(range, numbers);
      });
}

template <class Rule>
template <auto kept, std::size_t size>
bool RuleOptimizer<Rule>::update_in_lanes(const Range& range, const std::array<double, size>& numbers,
                                          std::int64_t steps) const {
  std::optional<detail::Bfloat16Rounding> rounding;
  if constexpr (requires { options_.rounding; }) rounding = rounding_of(range, steps);
  return detail::one_pass<detail::number_kept<kept>>(
      range.values, range.gradients, range.moments, detail::kernel_of<kept>(rule_, numbers, gradient_scale()),
      rounding);
}

template <class Rule>
template <auto kept, std::size_t size>
void RuleOptimizer<Rule>::update_by_operators(const Range& range,
                                              const std::array<double, size>& numbers) const {
  const auto update = [&](const auto& now) {
    detail::update_by_operators<kept>(rule_, range.values, scaled(range.gradients), range.moments, now);
  };
  if (!range.numbers.defined()) return update(numbers);
  [&]<std::size_t... N>(std::index_sequence<N...>) {
    update(std::array{detail::Elements(range.numbers.select(0, N))...});
  }
  (std::make_index_sequence<size>());
}

template <class Rule>
void RuleOptimizer<Rule>::update_by_libtorch(const Lists& lists, const ParamGroup& group,
                                             std::int64_t steps) {
  if constexpr (detail::HasLibtorchKernel<Rule>) {
    rule_.options = options_of(group);
    rule_.update_by_libtorch(lists, RuleStep{group.lr, group.weight_decay, steps}, gradient_scale());
  }
}

template <class Rule>
std::vector<FlatOptimizer::Moment> RuleOptimizer<Rule>::kept_moments(const Options& options) {
  std::vector<FlatOptimizer::Moment> result;
  for (const auto& moment : detail::kept_moments(Rule::moments(options)))
    result.push_back({std::string(moment.name), moment.initial});
  return result;
}

template <class Rule>
FlatOptimizer::Kernels RuleOptimizer<Rule>::kernels(const Options& options) {
  Kernels kernels;
  if constexpr (requires { options.fused; })
    if (!options.fused) return kernels;
  kernels.has_one_pass = true;
  if constexpr (detail::HasLibtorchKernel<Rule>) kernels.has_libtorch = &Rule::has_libtorch_kernel;
  if constexpr (requires { &Rule::has_capturable_kernel; })
    kernels.has_capturable = &Rule::has_capturable_kernel;
  return kernels;
}

template <class Rule>
std::optional<FlatOptimizer::RoundingOptions> RuleOptimizer<Rule>::rounding(const Options& options) {
  if constexpr (requires { options.rounding; })
    return RoundingOptions{options.rounding, options.seed};
  else
    return std::nullopt;
}

template <class Rule>
typename Rule::Options RuleOptimizer<Rule>::options_of(const ParamGroup& group) const {
  return detail::with_momentum(options_, group.momentum);
}

}  // namespace etude::inline v0
