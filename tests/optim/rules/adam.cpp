#include <doctest/doctest.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include "etude/optim/rules/adam.hpp"

#include "etude/base/error.hpp"
#include "optim/compare.hpp"

namespace optim_adam_test {

TEST_CASE("AdamW equals torch's over 1,000 steps, fused or not") {
  for (bool fused : {false, true}) {
    for (bool amsgrad : {false, true}) {
      CAPTURE(fused);
      CAPTURE(amsgrad);
      COMPARE_WITH_TORCH(
          torch::optim::AdamWOptions,
          beside_torch::ours<etude::AdamW>(etude::AdamWOptions{.lr = 0.01,
                                                               .beta1 = 0.8,
                                                               .beta2 = 0.99,
                                                               .weight_decay = 0.1,
                                                               .amsgrad = amsgrad,
                                                               .fused = fused}),
          beside_torch::theirs<torch::optim::AdamW>(
              torch::optim::AdamWOptions(0.01).betas({0.8, 0.99}).weight_decay(0.1).amsgrad(amsgrad)),
          beside_torch::Tolerance());
    }
  }
}

TEST_CASE("Adam equals torch's over 1,000 steps, fused or not") {
  for (bool fused : {false, true}) {
    for (bool amsgrad : {false, true}) {
      CAPTURE(fused);
      CAPTURE(amsgrad);
      COMPARE_WITH_TORCH(torch::optim::AdamOptions,
                         beside_torch::ours<etude::Adam>(etude::AdamOptions{
                             .lr = 0.01, .weight_decay = 0.1, .amsgrad = amsgrad, .fused = fused}),
                         beside_torch::theirs<torch::optim::Adam>(
                             torch::optim::AdamOptions(0.01).weight_decay(0.1).amsgrad(amsgrad)),
                         beside_torch::Tolerance());
    }
  }
}

TEST_CASE("Adam's options have torch's defaults, and are checked") {
  const etude::AdamWOptions ours;
  const torch::optim::AdamWOptions theirs;
  CHECK(ours.lr == theirs.lr());
  CHECK(ours.beta1 == std::get<0>(theirs.betas()));
  CHECK(ours.beta2 == std::get<1>(theirs.betas()));
  CHECK(ours.eps == theirs.eps());
  CHECK(ours.weight_decay == theirs.weight_decay());
  CHECK(ours.amsgrad == theirs.amsgrad());
  CHECK(etude::AdamOptions().weight_decay == torch::optim::AdamOptions().weight_decay());
  const beside_torch::Twins twins(at::kFloat);
  CHECK_THROWS_WITH_AS(etude::AdamW({{twins.ours, {}, {}}}, {.lr = -1, .beta1 = 1}),
                       "lr is -1: must be at least 0 and finite\nbeta1 is 1: must be at least 0 and below 1",
                       etude::ArgumentError);
}

TEST_CASE("a long vector is updated completely: by many threads if fused, piece by piece if plain") {
  at::set_num_threads(2);
  for (bool fused : {false, true}) {
    const torch::Tensor a = torch::randn({300, 1000}).set_requires_grad(true);
    torch::Tensor b = a.detach().clone().set_requires_grad(true);
    etude::AdamW ours({{{{"a", a}}, {}, {}}}, {.fused = fused});
    torch::optim::AdamW theirs({b});
    for (int step = 0; step < 3; ++step) {
      const torch::Tensor gradient = torch::randn_like(a.detach());
      ours.zero_grad();
      a.mutable_grad() = gradient.clone();
      b.mutable_grad() = gradient;
      ours.step();
      theirs.step();
    }
    CHECK(torch::allclose(a, b, 1e-6, 1e-7));
  }
  at::set_num_threads(1);
}

}  // namespace optim_adam_test
