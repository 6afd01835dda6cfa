#pragma once

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/rule_optimizer.hpp"

/// Compares an optimizer with its formula, written out for one element in doubles, in every way in which a
/// rule runs. Some parameters get a gradient in every step, one in some steps, one never.
namespace by_formula {

/// What an update of an element depends on besides its state.
struct Update {
  double gradient, lr, weight_decay;
  std::int64_t step;  ///< 1 is the first
};

constexpr std::int64_t steps = 200;

/// The learning rate of a step, counted from 0; weights have another one than the rest.
inline double rate(double lr, bool decays, std::int64_t step) {
  return lr * (decays ? 1 : 3) * (step < steps / 2 ? 1 : 0.5);
}

/// A parameter's start, gradients and end according to the formula. Start and gradients are exact in
/// bfloat16, so all dtypes get the same.
struct Course {
  std::string name;
  bool decays;
  torch::Tensor start, end;              // float64
  std::vector<torch::Tensor> gradients;  // undefined in steps without one
  etude::NamedTensors state = {};        // empty if the parameter never got a gradient
};

/// `Element` is the formula: its state, a number for each moment, with `void update(double& value, const
/// Update&)` and `std::map<std::string, double> moments() const`. The gradients are those of a noisy
/// quadratic function with its minimum at 1.
template <class Element>
std::vector<Course> courses(const Element& initial, double lr, double weight_decay) {
  const auto exact = [](const torch::Tensor& tensor) { return tensor.to(at::kBFloat16).to(at::kDouble); };
  torch::manual_seed(7);
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes{{"a.weight", {5, 3}},
                                                                              {"a.bias", {5}},
                                                                              {"never.weight", {3}},
                                                                              {"sometimes.weight", {7}},
                                                                              {"scalar", {}}};
  std::vector<Course> result;
  for (const auto& [name, sizes] : shapes) {
    Course course{name, etude::decays_by_name(name), exact(torch::randn(sizes, at::kDouble)), {}, {}};
    course.end = course.start.clone();
    const torch::Tensor flat = course.end.flatten();
    std::vector<Element> elements(static_cast<std::size_t>(flat.numel()), initial);
    std::int64_t count = 0;
    for (std::int64_t step = 0; step < steps; ++step) {
      auto& gradient = course.gradients.emplace_back();
      if (name == "never.weight" || (name == "sometimes.weight" && step % 3 != 1)) continue;
      gradient = exact((course.end - 1) * 0.3 + torch::randn(sizes, at::kDouble));
      ++count;
      for (std::size_t i = 0; i < elements.size(); ++i)
        elements[i].update(flat.data_ptr<double>()[i],
                           {gradient.data_ptr<double>()[i], rate(lr, course.decays, step),
                            course.decays ? weight_decay : 0, count});
    }
    if (count > 0) {
      std::map<std::string, std::vector<double>> moments;
      for (const Element& element : elements)
        for (const auto& [moment, value] : element.moments()) moments[moment].push_back(value);
      for (const auto& [moment, values] : moments)
        course.state.emplace_back(name + "." + moment, torch::tensor(values, at::kDouble).reshape(sizes));
      course.state.emplace_back(name + ".step", torch::scalar_tensor(count, at::kLong));
    }
    result.push_back(std::move(course));
  }
  return result;
}

/// One training along the courses.
template <class Optimizer>
struct Training {
  using Options = typename Optimizer::Options;

  const std::vector<Course>& along;
  Options options;
  etude::NamedTensors parameters = {};

  Training(const std::vector<Course>& courses, at::ScalarType type, const Options& given)
      : along(courses), options(given) {
    for (const Course& course : along)
      parameters.emplace_back(
          course.name, course.start.to(type, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true));
  }

  Optimizer optimizer(double weight_decay) const {
    auto groups = etude::parameter_groups(parameters, weight_decay);
    groups[1].lr = rate(options.lr, false, 0);
    return Optimizer(groups, options);
  }

  void run(etude::Optimizer& optimizer, std::int64_t from = 0, std::int64_t to = steps) const {
    for (std::int64_t step = from; step < to; ++step) {
      optimizer.param_groups()[0].lr = rate(options.lr, true, step);
      optimizer.param_groups()[1].lr = rate(options.lr, false, step);
      optimizer.zero_grad();
      for (std::size_t i = 0; i < along.size(); ++i) {
        const torch::Tensor& gradient = along[i].gradients[static_cast<std::size_t>(step)];
        torch::Tensor parameter = parameters[i].second;
        if (gradient.defined()) parameter.mutable_grad() = gradient.to(parameter.scalar_type());
      }
      optimizer.step();
    }
  }

  /// The largest difference from the courses, relative to numbers above 1.
  double difference() const {
    double worst = 0;
    for (std::size_t i = 0; i < along.size(); ++i) {
      const torch::Tensor& end = along[i].end;
      const torch::Tensor ours = parameters[i].second.detach().to(at::kDouble);
      const double here = ((ours - end).abs() / end.abs().clamp_min(1)).max().item<double>();
      worst = here <= worst ? worst : here;  // NaN counts as the worst
    }
    return worst;
  }
};

inline void check_states(const std::vector<Course>& along, const etude::NamedTensors& state,
                         double tolerance) {
  std::map<std::string, torch::Tensor> ours(state.begin(), state.end());
  std::size_t count = 0;
  for (const Course& course : along)
    for (const auto& expected : course.state) {
      CAPTURE(expected.first);
      ++count;
      REQUIRE(ours.contains(expected.first));
      CHECK(torch::allclose(ours[expected.first].to(at::kDouble), expected.second.to(at::kDouble), tolerance,
                            tolerance));
    }
  CHECK(ours.size() == count);
}

/// While it lives, updates use LibTorch's operators instead of Etude's kernels.
struct ByOperators {
  ByOperators() { etude::detail::uses_cpu_kernels() = false; }
  ByOperators(const ByOperators&) = delete;
  ByOperators& operator=(const ByOperators&) = delete;
  ~ByOperators() { etude::detail::uses_cpu_kernels() = true; }
};

/// Checks that the optimizer follows the formula: in kernels and by operators, in float64 and float32,
/// captured, with its moments on the host, after a resume, and in bfloat16 if it rounds.
template <class Optimizer, class Element>
void check(const typename Optimizer::Options& options, const Element& initial, double weight_decay = 0.2) {
  const std::vector<Course> along = courses(initial, options.lr, weight_decay);
  const auto run = [&](at::ScalarType type, const auto& given, const auto& prepare) {
    Training<Optimizer> training(along, type, given);
    Optimizer optimizer = training.optimizer(weight_decay);
    prepare(optimizer);
    training.run(optimizer);
    if (type == at::kDouble) check_states(along, optimizer.state(), 1e-10);
    return training.difference();
  };
  const auto as_it_is = [](Optimizer&) {};
  const auto in_floats = [&](const auto& given) {
    CHECK(run(at::kDouble, given, as_it_is) < 1e-11);
    CHECK(run(at::kFloat, given, as_it_is) < 1e-5);
  };
  in_floats(options);
  {
    const ByOperators scope;
    in_floats(options);
  }
  if constexpr (requires { options.fused; }) {
    auto plain = options;
    plain.fused = false;
    in_floats(plain);
  }
  CHECK(run(at::kDouble, options, [](Optimizer& optimizer) { REQUIRE(optimizer.make_capturable()); }) <
        1e-11);
  CHECK(run(at::kDouble, options, [](Optimizer& optimizer) { REQUIRE(optimizer.offload_moments()); }) <
        1e-11);

  Training<Optimizer> whole(along, at::kDouble, options);
  Optimizer uninterrupted = whole.optimizer(weight_decay);
  whole.run(uninterrupted, 0, 100);
  Training<Optimizer> half(along, at::kDouble, options);
  for (std::size_t i = 0; i < along.size(); ++i)
    half.parameters[i].second = whole.parameters[i].second.detach().clone().set_requires_grad(true);
  Optimizer resumed = half.optimizer(weight_decay);
  etude::NamedTensors state;
  for (const auto& [name, tensor] : uninterrupted.state()) state.emplace_back(name, tensor.clone());
  resumed.load_state(state);
  whole.run(uninterrupted, 100);
  half.run(resumed, 100);
  for (std::size_t i = 0; i < along.size(); ++i)
    CHECK(torch::equal(half.parameters[i].second, whole.parameters[i].second));

  if constexpr (requires { options.rounding; }) {
    // Moments have 8 bits, and are rounded at random.
    for (const auto& [rounding, tolerance] :
         {std::pair(etude::Rounding::kahan, 0.03), {etude::Rounding::stochastic, 0.12}}) {
      auto rounds = options;
      rounds.rounding = rounding;
      CHECK(run(at::kBFloat16, rounds, as_it_is) < tolerance);
      const ByOperators scope;
      CHECK(run(at::kBFloat16, rounds, as_it_is) < tolerance);
    }
  }
}

}  // namespace by_formula
