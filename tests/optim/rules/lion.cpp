#include <doctest/doctest.h>

#include "etude/optim/rules/lion.hpp"

#include "optim/compare.hpp"

namespace optim_lion_test {

/// Updates one element with the paper's algorithm 2.
struct ScalarLion {
  double value, momentum = 0;
  void step(double gradient, double lr, double beta1, double beta2, double weight_decay) {
    const double direction = beta1 * momentum + (1 - beta1) * gradient;
    const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    value -= lr * (sign + weight_decay * value);
    momentum = beta2 * momentum + (1 - beta2) * gradient;
  }
};

TEST_CASE("Lion equals its scalar reference over 1,000 steps, group by group") {
  const beside_torch::Twins twins(at::kDouble);
  etude::Lion lion(beside_torch::groups_of(twins.ours, true), {.lr = 1e-3, .beta1 = 0.85, .beta2 = 0.97});
  std::vector<std::vector<ScalarLion>> reference;
  for (const auto& [name, tensor] : twins.theirs) {
    auto& scalars = reference.emplace_back();
    const torch::Tensor flat = tensor.detach().flatten();
    for (std::int64_t i = 0; i < flat.numel(); ++i) scalars.push_back({flat[i].item<double>()});
  }
  for (std::int64_t step = 0; step < 1000; ++step) {
    lion.zero_grad();
    twins.set_gradients(step);
    for (std::size_t p = 0; p < reference.size(); ++p) {
      const auto& [name, tensor] = twins.theirs[p];
      if (!tensor.grad().defined()) continue;
      const bool decays = etude::decays_by_name(name);
      const torch::Tensor gradient = tensor.grad().contiguous();
      for (std::size_t i = 0; i < reference[p].size(); ++i) {
        reference[p][i].step(gradient.data_ptr<double>()[i], decays ? 1e-3 : 3e-3, 0.85, 0.97,
                             decays ? 0.2 : 0.0);
      }
    }
    lion.step();
  }
  for (std::size_t p = 0; p < reference.size(); ++p) {
    const torch::Tensor flat = twins.ours[p].second.detach().flatten();
    for (std::size_t i = 0; i < reference[p].size(); ++i) {
      CHECK(flat.data_ptr<double>()[i] == doctest::Approx(reference[p][i].value).epsilon(1e-12));
    }
  }
}

}  // namespace optim_lion_test
