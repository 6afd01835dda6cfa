// The handwritten loop that examples/physics.cpp replaces.

#include "../data/physics.hpp"

#include <cstdio>

int main() {
  torch::manual_seed(42);
  auto net = network();
  const auto x = inner_points();

  std::int64_t step = 0;
  double sum = 0;
  const auto report = [&](const torch::Tensor& loss) {
    sum += loss.item<double>();
    if (++step % report_steps != 0) return;
    const torch::NoGradGuard no_grad;
    std::printf("step %ld loss %.9f\n", static_cast<long>(step), sum / report_steps);
    std::printf("step %ld error %.9f\n", static_cast<long>(step), error(net, x).item<double>());
    sum = 0;
  };
  const auto closure = [&](torch::optim::Optimizer& optimizer) {
    optimizer.zero_grad();
    const auto loss = residual(net, x);
    loss.backward();
    return loss;
  };

  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(adam_rate));
  for (std::int64_t i = 0; i < adam_steps; ++i) {
    const auto loss = closure(adam);
    adam.step();
    report(loss);
  }
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(lbfgs_rate));
  for (std::int64_t i = 0; i < lbfgs_steps; ++i) report(lbfgs.step([&] { return closure(lbfgs); }));
  torch::save(net, "solution.pt");
}
