#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

/// Poles that stand on carts, and stay up for as long as the carts are pushed the right way: the problem of
/// Barto, Sutton and Anderson 1983, with the numbers of Gymnasium's CartPole-v1.
class CartPoles {
 public:
  explicit CartPoles(std::int64_t count) : states_(begin(count)), steps_(torch::zeros({count})) {}

  /// The carts' positions [m] and speeds [m/s], and the poles' angles [rad] and angular speeds [rad/s]:
  /// [count, 4].
  const torch::Tensor& states() const { return states_; }
  /// The steps since each episode began [count].
  const torch::Tensor& steps() const { return steps_; }
  void set(const torch::Tensor& states, const torch::Tensor& steps) { states_ = states, steps_ = steps; }

  /// Pushes each cart left (0) or right (1) for 0.02 s, and returns which episodes ended there [count]:
  /// because the pole fell, the cart left its track, or 500 steps were done. Ended episodes restart. Each
  /// step has a reward of 1.
  torch::Tensor step(const torch::Tensor& pushes) {
    const auto x = states_.select(1, 0), speed = states_.select(1, 1);
    const auto angle = states_.select(1, 2), angular_speed = states_.select(1, 3);
    const auto force = (pushes * 2 - 1) * 10.0;
    const auto sine = angle.sin(), cosine = angle.cos();
    const auto push = (force + 0.05 * angular_speed.square() * sine) / 1.1;
    const auto angular = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3 - 0.1 * cosine.square() / 1.1));
    const auto acceleration = push - 0.05 * angular * cosine / 1.1;
    const auto next = torch::stack({x + 0.02 * speed, speed + 0.02 * acceleration,
                                    angle + 0.02 * angular_speed, angular_speed + 0.02 * angular},
                                   1);
    steps_ = steps_ + 1;
    const auto fell = next.select(1, 2).abs() > 12 * std::numbers::pi / 180;
    const auto ended = fell | (next.select(1, 0).abs() > 2.4) | (steps_ >= 500);
    states_ = torch::where(ended.unsqueeze(1), begin(next.size(0)), next);
    steps_ = steps_.masked_fill(ended, 0);
    return ended;
  }

 private:
  static torch::Tensor begin(std::int64_t count) { return torch::rand({count, 4}) * 0.1 - 0.05; }

  torch::Tensor states_, steps_;
};
