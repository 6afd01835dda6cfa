#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

/// For the example dqn: the network, the environment, the replay buffer and the settings.

constexpr std::int64_t updates = 6000, batch_size = 64, capacity = 5000, warmup = 200, evaluate_every = 1000;
constexpr double learning_rate = 1e-3, discount = 0.99, tau = 0.01, clip_value = 1.0;

struct QNetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor states) { return out(torch::relu(second(torch::relu(first(states))))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 64));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(64, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 2));
};
TORCH_MODULE(QNet);

/// One pole on a cart, with the constants of the usual benchmark.
struct CartPole {
  torch::Tensor state;
  std::int64_t steps = 0;

  void reset() { state = torch::rand({4}) * 0.1 - 0.05, steps = 0; }
  /// Returns whether the pole has fallen.
  bool step(std::int64_t action) {
    const auto* s = state.data_ptr<float>();
    double x = s[0], v = s[1], angle = s[2], w = s[3];
    const double force = action == 1 ? 10 : -10;
    const double temp = (force + 0.05 * w * w * std::sin(angle)) / 1.1;
    const double aa = (9.8 * std::sin(angle) - std::cos(angle) * temp) /
                      (0.5 * (4.0 / 3 - 0.1 * std::cos(angle) * std::cos(angle) / 1.1));
    const double a = temp - 0.05 * aa * std::cos(angle) / 1.1;
    x += 0.02 * v, v += 0.02 * a, angle += 0.02 * w, w += 0.02 * aa;
    state = torch::tensor({x, v, angle, w}, torch::kFloat);
    ++steps;
    return std::abs(x) > 2.4 || std::abs(angle) > 0.2095;
  }
  bool over() const { return steps >= 200; }
};

struct Replay {
  torch::Tensor states = torch::zeros({capacity, 4}), next = torch::zeros({capacity, 4});
  torch::Tensor actions = torch::zeros({capacity}, torch::kLong);
  torch::Tensor rewards = torch::zeros({capacity}), ends = torch::zeros({capacity});
  std::int64_t added = 0;

  std::int64_t size() const { return std::min(added, capacity); }
  void add(const torch::Tensor& state, std::int64_t action, double reward, const torch::Tensor& after,
           bool end) {
    const auto i = added++ % capacity;
    states[i] = state, next[i] = after, actions[i] = action, rewards[i] = reward, ends[i] = end ? 1.0 : 0.0;
  }
};

inline double epsilon(std::int64_t step) {
  return 0.05 + 0.85 * std::exp(-static_cast<double>(step) / 1000.0);
}

inline std::int64_t act(QNet& net, const torch::Tensor& state, double eps) {
  if (torch::rand({1}).item<double>() < eps) return torch::randint(2, {1}).item<std::int64_t>();
  const torch::NoGradGuard no_grad;
  return net(state.unsqueeze(0)).argmax(1).item<std::int64_t>();
}

/// Mean number of steps of 5 greedy episodes.
inline double play(QNet& net) {
  double total = 0;
  for (int i = 0; i < 5; ++i) {
    CartPole pole;
    pole.reset();
    while (!pole.step(act(net, pole.state, 0)) && !pole.over()) {
    }
    total += static_cast<double>(pole.steps) / 5;
  }
  return total;
}

inline void copy_weights(QNet& from, QNet& to, double share) {
  const torch::NoGradGuard no_grad;
  const auto source = from->parameters();
  const auto target = to->parameters();
  for (std::size_t i = 0; i < source.size(); ++i) target[i].lerp_(source[i], share);
}
