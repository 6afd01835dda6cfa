#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/optimizer.hpp"
#include "optim/compare.hpp"

/// Compares an optimizer of whole parameters with its formula in float64.
namespace beside_formula {

/// What the formula knows of a step and keeps for a parameter.
struct Step {
  double lr, weight_decay;
  int number;  ///< 1 in the first step of this parameter
  std::map<std::string, torch::Tensor>& kept;

  /// A tensor that is kept from step to step. It starts as zeros of these sizes.
  torch::Tensor& zeros(const std::string& name, at::IntArrayRef sizes) const {
    auto& tensor = kept[name];
    if (!tensor.defined()) tensor = torch::zeros(sizes, at::kDouble);
    return tensor;
  }
};

template <class Optimizer, class Options, class Formula>
double difference_after_200_steps(const Options& options, const Formula& formula) {
  const beside_torch::Twins twins(at::kDouble);
  Optimizer ours(beside_torch::groups_of(twins.ours, true), options);
  std::vector<std::map<std::string, torch::Tensor>> kept(twins.theirs.size());
  std::vector<int> steps(twins.theirs.size(), 0);
  for (std::int64_t step = 0; step < 200; ++step) {
    ours.zero_grad();
    twins.set_gradients(step);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < twins.theirs.size(); ++i) {
      const auto& [name, values] = twins.theirs[i];
      if (!values.grad().defined()) continue;
      const bool decays = etude::decays_by_name(name);
      formula(values, values.grad(),
              Step{decays ? options.lr : 0.003, decays ? 0.2 : 0.0, ++steps[i], kept[i]});
    }
    ours.step();
  }
  return twins.difference();
}

/// The largest difference after 200 steps between `Optimizer` and `formula(values, gradient, step)`, which
/// changes the values, with Etude's kernels and with LibTorch's operators. There are two groups with
/// different learning rates and decays; some parameters lack gradients in some steps or in all (see
/// `beside_torch::Twins`).
template <class Optimizer, class Options, class Formula>
double after_200_steps(const Options& options, const Formula& formula) {
  double worst = 0;
  for (const bool by_kernels : {true, false}) {
    etude::detail::uses_cpu_kernels() = by_kernels;
    const double here = difference_after_200_steps<Optimizer>(options, formula);
    worst = here <= worst ? worst : here;  // NaN counts as the worst
  }
  etude::detail::uses_cpu_kernels() = true;
  return worst;
}

inline etude::NamedTensors clones(const etude::NamedTensors& tensors) {
  etude::NamedTensors result;
  for (const auto& [name, tensor] : tensors) result.emplace_back(name, tensor.detach().clone());
  return result;
}

inline void train(etude::Optimizer& optimizer, const beside_torch::Twins& twins, std::int64_t from,
                  std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    optimizer.zero_grad();
    twins.set_gradients(step);
    optimizer.step();
  }
}

/// True if a training that is saved and resumed after 100 steps is bit-identical to one of 200 steps.
template <class Optimizer, class Options>
bool resumes_to_the_bit(at::ScalarType type, const Options& options) {
  const beside_torch::Twins whole(type), halves(type);
  const auto groups = [](const beside_torch::Twins& twins) {
    return beside_torch::groups_of(twins.ours, true);
  };
  // The copies are given the same gradients: those of the values of `theirs`, which nothing changes.
  Optimizer uninterrupted(groups(whole), options);
  train(uninterrupted, whole, 0, 200);
  etude::NamedTensors state;
  {
    Optimizer first(groups(halves), options);
    train(first, halves, 0, 100);
    state = clones(first.state());
  }
  Optimizer second(groups(halves), options);
  second.load_state(state);
  train(second, halves, 100, 200);
  for (std::size_t i = 0; i < whole.ours.size(); ++i)
    if (!whole.ours[i].second.equal(halves.ours[i].second)) return false;
  const auto a = uninterrupted.state(), b = second.state();
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].first != b[i].first || !a[i].second.equal(b[i].second)) return false;
  return a.size() == b.size();
}

/// Makes one step of an empty parameter, a 0-dim one and a bfloat16 one. True if the bfloat16 one then equals
/// a float32 parameter with the same start and gradient, rounded to nearest.
template <class Optimizer, class Options>
bool updates_halves_in_float32(const Options& options) {
  torch::manual_seed(3);
  const torch::Tensor values = torch::randn({8, 5}).to(at::kBFloat16),
                      gradient = torch::randn({8, 5}).to(at::kBFloat16);
  etude::NamedTensors parameters{{"half", values.clone()},
                                 {"single", values.to(at::kFloat)},
                                 {"empty", torch::zeros({0, 4})},
                                 {"number", torch::ones({})}};
  for (auto& [name, tensor] : parameters) tensor.set_requires_grad(true);
  Optimizer optimizer({{.parameters = parameters, .lr = {}, .weight_decay = {}}}, options);
  for (int step = 0; step < 2; ++step) {
    const torch::NoGradGuard no_grad;
    parameters[1].second.copy_(parameters[0].second);
    for (auto& [name, tensor] : parameters)
      tensor.mutable_grad() = tensor.dim() == 2 && tensor.numel() > 0 ? gradient.to(tensor.scalar_type())
                                                                      : torch::ones_like(tensor);
    optimizer.step();
  }
  const torch::NoGradGuard no_grad;
  return !parameters[0].second.equal(values) && parameters[3].second.isfinite().item<bool>() &&
         parameters[0].second.equal(parameters[1].second.to(at::kBFloat16));
}

}  // namespace beside_formula
