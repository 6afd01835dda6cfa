#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include "etude/optim/optimizer.hpp"

/// Runs an Etude optimizer on flat parameters and a torch optimizer on plain copies, with the same gradients.
/// Some parameters get a gradient in every step, one in some steps, one never, and one is frozen.
namespace beside_torch {

using Ours = std::function<std::unique_ptr<etude::Optimizer>(const std::vector<etude::ParameterGroup>&)>;
using Theirs =
    std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<torch::optim::OptimizerParamGroup>)>;

struct Twins {
  etude::NamedTensors ours, theirs;

  explicit Twins(at::ScalarType type) {
    torch::manual_seed(1);
    const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes{{"a.weight", {6, 5}},
                                                                                {"a.bias", {6}},
                                                                                {"never.weight", {3}},
                                                                                {"norm.weight", {6}},
                                                                                {"sometimes.weight", {4, 3}},
                                                                                {"frozen.weight", {2}},
                                                                                {"b.weight", {3, 6, 2}},
                                                                                {"b.bias", {3}},
                                                                                {"scalar", {}}};
    for (const auto& [name, sizes] : shapes) {
      const torch::Tensor values = torch::randn(sizes, torch::TensorOptions().dtype(at::kDouble)).to(type);
      ours.emplace_back(name, values.clone().set_requires_grad(name != "frozen.weight"));
      theirs.emplace_back(name, values.clone().set_requires_grad(name != "frozen.weight"));
    }
  }

  static bool gets_gradient(const std::string& name, std::int64_t step) {
    return name != "never.weight" && name != "frozen.weight" && (name != "sometimes.weight" || step % 3 == 1);
  }

  /// Gives both the gradients of a noisy quadratic function with its minimum at 1.
  void set_gradients(std::int64_t step) const {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      theirs[i].second.mutable_grad().reset();
      if (!gets_gradient(ours[i].first, step)) continue;
      const torch::Tensor& values = theirs[i].second;
      const torch::Tensor gradient =
          (values - 1) * 0.3 + torch::randn(values.sizes(), at::kDouble).to(values.scalar_type());
      theirs[i].second.mutable_grad() = gradient;
      ours[i].second.mutable_grad() = torch::empty_like(ours[i].second.detach()).copy_(gradient);
    }
  }

  /// The largest difference between corresponding elements, relative to torch's if that is above 1.
  double difference() const {
    double worst = 0;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      const torch::Tensor a = ours[i].second.detach().to(at::kDouble),
                          b = theirs[i].second.detach().to(at::kDouble);
      const double here = ((a - b).abs() / b.abs().clamp_min(1)).max().item<double>();
      worst = here <= worst ? worst : here;  // NaN counts as the worst
    }
    return worst;
  }
};

/// One group, or two with different learning rates and decays: weights and the rest.
inline std::vector<etude::ParameterGroup> groups_of(const etude::NamedTensors& parameters, bool several) {
  if (!several) return {{.parameters = parameters, .lr = {}, .weight_decay = {}}};
  std::vector<etude::ParameterGroup> groups = etude::parameter_groups(parameters, 0.2);
  groups[1].lr = 0.003;
  return groups;
}

/// The largest difference after 1,000 steps with a falling learning rate. `Options` is torch's type.
template <typename Options>
double after_1000_steps(at::ScalarType type, bool several_groups, const Ours& make_ours,
                        const Theirs& make_theirs) {
  at::set_num_threads(1);  // so that fused kernels are used for vectors as short as these
  const Twins twins(type);
  const auto ours = make_ours(groups_of(twins.ours, several_groups));
  const auto their_groups = groups_of(twins.theirs, several_groups);
  std::vector<torch::optim::OptimizerParamGroup> torch_groups;
  for (const auto& group : their_groups) {
    std::vector<torch::Tensor> tensors;
    for (const auto& [name, tensor] : group.parameters) tensors.push_back(tensor);
    torch_groups.emplace_back(tensors);
  }
  const auto theirs = make_theirs(torch_groups);
  // Options are set afterwards, since LibTorch versions differ in which options a group inherits.
  for (std::size_t i = 0; i < their_groups.size(); ++i) {
    auto& options = static_cast<Options&>(theirs->param_groups()[i].options());
    if (their_groups[i].lr) options.lr(*their_groups[i].lr);
    if (their_groups[i].weight_decay) options.weight_decay(*their_groups[i].weight_decay);
  }
  for (std::int64_t step = 0; step < 1000; ++step) {
    if (step % 100 == 99) {
      for (std::size_t i = 0; i < their_groups.size(); ++i) {
        auto& options = theirs->param_groups()[i].options();
        options.set_lr(options.get_lr() * 0.9);
        ours->param_groups()[i].lr = options.get_lr();
      }
    }
    ours->zero_grad();
    twins.set_gradients(step);
    ours->step();
    theirs->step();
  }
  return twins.difference();
}

/// A function for `after_1000_steps` that makes Etude's optimizer with `options`.
template <typename Optimizer, typename Options>
Ours ours(const Options& options) {
  return [=](const auto& groups) { return std::make_unique<Optimizer>(groups, options); };
}

/// The same for torch's optimizer.
template <typename Optimizer, typename Options>
Theirs theirs(const Options& options) {
  return [=](auto groups) { return std::make_shared<Optimizer>(groups, options); };
}

/// Measured differences are below 1e-15 (float64) and 2e-6 (float32); plain updates are equal.
struct Tolerance {
  double float64 = 1e-13, float32 = 1e-5;
};

#define COMPARE_WITH_TORCH(TorchOptions, make_ours, make_theirs, tolerance)                           \
  do {                                                                                                \
    CHECK(beside_torch::after_1000_steps<TorchOptions>(at::kDouble, false, make_ours, make_theirs) <= \
          (tolerance).float64);                                                                       \
    CHECK(beside_torch::after_1000_steps<TorchOptions>(at::kDouble, true, make_ours, make_theirs) <=  \
          (tolerance).float64);                                                                       \
    CHECK(beside_torch::after_1000_steps<TorchOptions>(at::kFloat, true, make_ours, make_theirs) <=   \
          (tolerance).float32);                                                                       \
  } while (false)

}  // namespace beside_torch
