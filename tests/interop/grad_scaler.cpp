#include "etude/precision/grad_scaler.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "etude/libtorch/autocast.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace {

torch::Tensor wave(std::int64_t size, double factor) {
  return torch::arange(size).to(torch::kDouble).mul(factor).sin().to(torch::kFloat);
}

std::vector<etude::ParameterGroup> group_of(const char* name, const torch::Tensor& parameter) {
  return {{{{name, parameter}}, {}, {}}};
}

}  // namespace

// The C++ half of grad_scaler.py: trains two weights with an optimizer each, and prints each step.
int main() {
  if (!etude::computes_in_float16(torch::kCPU)) return 77;
  const auto a = wave(12, 0.7).reshape({3, 4}).requires_grad_(),
             b = wave(12, 1.3).reshape({3, 4}).requires_grad_();
  etude::SGD first(group_of("a", a), {.lr = 0.002, .momentum = 0.9});
  etude::SGD second(group_of("b", b), {.lr = 0.001});
  etude::GradScaler scaler(
      {.init_scale = 16384, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  for (int step = 0; step < 60; ++step) {
    const auto x = wave(20, 0.3 + 0.1 * step).reshape({5, 4});
    first.zero_grad();
    second.zero_grad();
    torch::Tensor of_a, of_b;
    {
      const etude::AutocastGuard lower(torch::kCPU, torch::kHalf);
      of_a = torch::linear(x, a);
      of_b = torch::linear(x * (step % 7 == 3 ? 40 : 1), b);
    }
    const auto loss = of_a.to(torch::kFloat).square().sum() + of_b.to(torch::kFloat).square().mean();
    scaler.scale(loss).backward();
    const bool finite = scaler.unscale(first);
    const double norm = finite ? first.clip_grad_norm(5).item<double>() : -1;
    const bool steps_first = scaler.step(first), steps_second = scaler.step(second);
    scaler.update();
    fmt::print("{} {} {} {} {:.9g} {:.9g} {:.9g} {:.9g}\n", steps_first, steps_second, scaler.get_scale(),
               scaler.state().growth_tracker, loss.item<double>(), norm, a.sum().item<double>(),
               b.square().sum().item<double>());
  }
}
