#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>

/// For the example physics: the points, the network, and the equation u'' = -pi^2 sin(pi x) between -1 and 1,
/// with u = 0 at both ends, whose solution is sin(pi x).

constexpr std::int64_t points = 64, adam_steps = 600, lbfgs_steps = 60, report_steps = 60;
constexpr double adam_rate = 5e-3, lbfgs_rate = 0.5;

inline torch::Tensor inner_points() { return torch::linspace(-1, 1, points).reshape({points, 1}); }

inline torch::Tensor solution(const torch::Tensor& x) { return (M_PI * x).sin(); }

inline torch::nn::Sequential network() {
  return torch::nn::Sequential(torch::nn::Linear(1, 24), torch::nn::Tanh(), torch::nn::Linear(24, 24),
                               torch::nn::Tanh(), torch::nn::Linear(24, 1));
}

/// The mean squares of the equation's residual at these points, and of the values at both ends.
inline torch::Tensor residual(torch::nn::Sequential& net, const torch::Tensor& at) {
  const auto x = at.detach().requires_grad_(true);
  const auto derivative = [](const torch::Tensor& y, const torch::Tensor& of) {
    return torch::autograd::grad({y.sum()}, {of}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  };
  const auto second = derivative(derivative(net->forward(x), x), x);
  const auto ends = net->forward(torch::tensor({-1.0F, 1.0F}).reshape({2, 1}));
  return (second + M_PI * M_PI * solution(x)).square().mean() + 10 * ends.square().mean();
}

/// The largest error at these points.
inline torch::Tensor error(torch::nn::Sequential& net, const torch::Tensor& x) {
  return (net->forward(x) - solution(x)).abs().max();
}
