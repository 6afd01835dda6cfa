#include "etude/optim/host_stage.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/optim/rules/adafactor.hpp"
#include "etude/optim/rules/adagrad.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/lion.hpp"
#include "etude/optim/rules/rmsprop.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace optim_host_stage_test {

using Make = std::function<std::unique_ptr<etude::Optimizer>(const std::vector<etude::ParameterGroup>&)>;

/// Two groups, one with more elements than are copied to the host at a time, and a parameter that lacks a
/// gradient in some steps.
struct Parameters {
  torch::Tensor large, small, sometimes;

  explicit Parameters(std::int64_t size = 2'500'000) {
    torch::manual_seed(3);
    large = torch::randn({size}).requires_grad_();
    small = torch::randn({7, 3}).requires_grad_();
    sometimes = torch::randn({5}).requires_grad_();
  }

  std::vector<etude::ParameterGroup> groups() const {
    return {{.parameters = {{"large", large}, {"sometimes", sometimes}}, .lr = {}, .weight_decay = 0.1},
            {.parameters = {{"small", small}}, .lr = 0.02, .weight_decay = {}}};
  }

  void step(etude::Optimizer& optimizer, int number) const {
    auto loss = (large * large).mul(0.5 + 0.1 * number).sum() + small.sin().sum();
    if (number % 2 == 0) loss = loss + sometimes.exp().sum();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }

  void check_equal(const Parameters& other) const {
    CHECK(torch::equal(large, other.large));
    CHECK(torch::equal(small, other.small));
    CHECK(torch::equal(sometimes, other.sometimes));
  }
};

void check_state(etude::Optimizer& ours, etude::Optimizer& theirs) {
  const auto a = ours.state(), b = theirs.state();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].first);
    CHECK(a[i].first == b[i].first);
    CHECK(torch::equal(a[i].second, b[i].second));
  }
}

void check_same_steps(const Make& make) {
  const Parameters there, here;
  const auto offloaded = make(there.groups()), plain = make(here.groups());
  CHECK(offloaded->offload_moments());
  for (int i = 0; i < 4; ++i) {
    there.step(*offloaded, i);
    here.step(*plain, i);
    if (i == 1)  // as a callback may do
      for (const auto& each : {there, here}) {
        const torch::NoGradGuard no_grad;
        each.large.data().clamp_(-1, 1);
      }
    if (i == 2) CHECK(offloaded->offload_moments());  // again
  }
  there.check_equal(here);
  check_state(*offloaded, *plain);
}

TEST_CASE("an optimizer whose moments are on the host makes the same steps, to the bit") {
  check_same_steps([](const auto& groups) { return std::make_unique<etude::AdamW>(groups); });
  check_same_steps([](const auto& groups) {
    return std::make_unique<etude::Adam>(groups, etude::AdamOptions{.amsgrad = true});
  });
  check_same_steps([](const auto& groups) {
    return std::make_unique<etude::SGD>(groups, etude::SGDOptions{.lr = 0.1, .momentum = 0.9});
  });
  check_same_steps([](const auto& groups) { return std::make_unique<etude::RMSprop>(groups); });
  check_same_steps([](const auto& groups) { return std::make_unique<etude::Lion>(groups); });
  check_same_steps([](const auto& groups) { return std::make_unique<etude::Adagrad>(groups); });
}

TEST_CASE("moments that were made on the device go to the host with their values, and so do loaded ones") {
  const Parameters there(100), here(100), resumed(100);
  etude::AdamW offloaded(there.groups()), plain(here.groups());
  for (int i = 0; i < 2; ++i) {
    there.step(offloaded, i);
    here.step(plain, i);
  }
  CHECK(offloaded.offload_moments());
  check_state(offloaded, plain);
  for (int i = 2; i < 4; ++i) {
    there.step(offloaded, i);
    here.step(plain, i);
  }
  there.check_equal(here);

  etude::AdamW other(resumed.groups());
  CHECK(other.offload_moments());
  other.load_state(plain.state());
  check_state(other, plain);
}

TEST_CASE("a piece is on its way while the one before it is used") {
  const auto values = torch::arange(12).to(torch::kFloat), gradients = values * 10;
  etude::HostStage stage(5, values.options());
  stage.fetch(0, values.narrow(0, 0, 5), gradients.narrow(0, 0, 5));
  stage.fetch(1, values.narrow(0, 5, 5), gradients.narrow(0, 5, 5));
  const auto first = stage.get(0);
  CHECK(torch::equal(first.gradients, gradients.narrow(0, 0, 5)));
  first.values.add_(100);
  stage.put_back(0, values.narrow(0, 0, 5));
  stage.fetch(2, values.narrow(0, 10, 2), gradients.narrow(0, 10, 2));
  CHECK(torch::equal(stage.get(1).values, torch::arange(5, 10).to(torch::kFloat)));
  const auto last = stage.get(2);
  CHECK(last.values.sizes() == std::vector<std::int64_t>{2});
  CHECK(torch::equal(last.gradients, gradients.narrow(0, 10, 2)));
  CHECK(torch::equal(values.narrow(0, 0, 6), torch::tensor({100.F, 101.F, 102.F, 103.F, 104.F, 5.F})));
}

TEST_CASE("an optimizer with other state doesn't offload it, and says so") {
  const Parameters parameters(10);
  etude::Adafactor optimizer(parameters.groups());
  CHECK_FALSE(optimizer.offload_moments());
  CHECK_FALSE(optimizer.make_capturable());
}

}  // namespace optim_host_stage_test
