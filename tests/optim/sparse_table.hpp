#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "etude/optim/parameter_groups.hpp"

/// A table with sparse gradients; each step reads a few of its rows, some of them twice.
namespace sparse_table {

constexpr std::int64_t rows = 40, width = 3;

struct Table {
  torch::Tensor weight, bias;

  explicit Table(at::ScalarType type = at::kFloat) {
    torch::manual_seed(1);
    weight = torch::randn({rows, width}).to(type).set_requires_grad(true);
    bias = torch::randn({width}).to(type).set_requires_grad(true);
  }

  etude::NamedTensors table() const { return {{"table.weight", weight}}; }
  etude::NamedTensors all() const { return {{"table.weight", weight}, {"bias", bias}}; }

  /// Adds the gradients of a step; the gradient of `bias` is dense.
  void backward(std::int64_t step, bool uses_bias = true) const {
    const auto read = (torch::arange(5) * (step + 1)).remainder(rows);
    const auto found =
        torch::embedding(weight, torch::cat({read, read.narrow(0, 0, 2)}), -1, false, /*sparse=*/true);
    auto loss = (found - 1).square().sum() * 0.3;
    if (uses_bias) loss = loss + (bias - 1).square().sum() * 0.3;
    loss.backward();
  }
};

/// Trains `etude` with an Etude optimizer and `torch` with a LibTorch optimizer, and compares them.
template <class Ours, class Theirs>
void check_equal_steps(const Table& etude, Ours& ours, const Table& torch, Theirs& theirs,
                       std::int64_t steps = 100, bool uses_bias = true) {
  for (std::int64_t step = 0; step < steps; ++step) {
    ours.zero_grad();
    theirs.zero_grad();
    etude.backward(step, uses_bias);
    torch.backward(step, uses_bias);
    ours.step();
    theirs.step();
  }
  REQUIRE(etude.weight.grad().is_sparse());
  CHECK(torch::allclose(etude.weight, torch.weight, 1e-5, 1e-6));
  CHECK(torch::allclose(etude.bias, torch.bias, 1e-5, 1e-6));
}

}  // namespace sparse_table
