#pragma once

#include <doctest/doctest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/data/dataset.hpp"

/// A problem that several processes share: five points of a sine wave, of one of three classes.
namespace toy::sines {

/// A perceptron 5-7-3, with the same weights in each call.
inline torch::nn::Sequential net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
}

/// The examples [first, first + count) of an endless set: points [count, 5] and labels [count].
inline std::pair<torch::Tensor, torch::Tensor> rows(std::int64_t first, std::int64_t count) {
  const auto numbers = torch::arange(first * 5, (first + count) * 5).to(torch::kFloat).reshape({count, 5});
  return {torch::sin(numbers), torch::arange(first, first + count).remainder(3)};
}
inline etude::Dataset examples(std::int64_t count, std::int64_t first = 0) {
  auto [points, labels] = rows(first, count);
  return {std::move(points), std::move(labels)};
}

/// Copies of a model's parameters and buffers.
template <class Trainer>
std::vector<torch::Tensor> weights(Trainer& trainer) {
  std::vector<torch::Tensor> result;
  for (const auto& [name, tensor] : trainer.model().state_dict()) result.push_back(tensor.detach().clone());
  return result;
}

/// Checks that no element differs by more than `tolerance`, times 1 plus the largest of `b`'s tensor.
inline void check_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b,
                        double tolerance = 1e-5) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK((a[i] - b[i]).abs().max().item<double>() <= tolerance * (1 + b[i].abs().max().item<double>()));
  }
}

}  // namespace toy::sines
