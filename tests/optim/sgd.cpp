#include <doctest/doctest.h>
#include <torch/optim/sgd.h>

#include "etude/optim/sgd.hpp"

#include "compare.hpp"
#include "etude/base/error.hpp"

namespace optim_sgd_test {

TEST_CASE("SGD equals torch's over 1,000 steps, fused or not") {
  struct Case {
    double momentum, dampening, weight_decay;
    bool nesterov;
  };
  for (const auto& options : {Case{0, 0, 0, false}, Case{0.9, 0, 0.01, false}, Case{0.9, 0.3, 0.01, false},
                              Case{0.9, 0, 0.01, true}}) {
    for (bool fused : {false, true}) {
      const auto& [momentum, dampening, weight_decay, nesterov] = options;
      CAPTURE(options.momentum);
      CAPTURE(options.dampening);
      CAPTURE(options.nesterov);
      CAPTURE(fused);
      COMPARE_WITH_TORCH(torch::optim::SGDOptions,
                         beside_torch::ours<etude::SGD>(etude::SGDOptions{.lr = 0.01,
                                                                          .momentum = momentum,
                                                                          .dampening = dampening,
                                                                          .weight_decay = weight_decay,
                                                                          .nesterov = nesterov,
                                                                          .fused = fused}),
                         beside_torch::theirs<torch::optim::SGD>(torch::optim::SGDOptions(0.01)
                                                                     .momentum(momentum)
                                                                     .dampening(dampening)
                                                                     .weight_decay(weight_decay)
                                                                     .nesterov(nesterov)),
                         beside_torch::Tolerance());
    }
  }
}

TEST_CASE("nesterov needs momentum and no dampening") {
  const beside_torch::Twins twins(at::kFloat);
  CHECK_THROWS_AS(etude::SGD({{twins.ours, {}, {}}}, {.nesterov = true}), etude::ArgumentError);
  CHECK_THROWS_AS(etude::SGD({{twins.ours, {}, {}}}, {.momentum = 0.9, .dampening = 0.1, .nesterov = true}),
                  etude::ArgumentError);
}

}  // namespace optim_sgd_test
