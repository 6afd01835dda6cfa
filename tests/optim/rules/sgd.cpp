#include <doctest/doctest.h>
#include <torch/optim/sgd.h>

#include <cmath>

#include "etude/optim/rules/sgd.hpp"

#include "etude/base/error.hpp"
#include "optim/compare.hpp"
#include "optim/sparse_table.hpp"

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

TEST_CASE("SGD updates the rows of a sparse gradient as torch's does, fused or not") {
  for (const bool fused : {false, true}) {
    CAPTURE(fused);
    const sparse_table::Table etude, torch;
    etude::SGD ours({{etude.all(), {}, {}}}, {.lr = 0.1, .fused = fused});
    torch::optim::SGD theirs({torch.weight, torch.bias}, torch::optim::SGDOptions(0.1));
    sparse_table::check_equal_steps(etude, ours, torch, theirs);
  }
}

TEST_CASE("SGD clips a sparse gradient in its step as a dense one") {
  const sparse_table::Table sparse, dense;
  etude::SGD with_rows({{sparse.all(), {}, {}}}, {.lr = 0.1}), whole({{dense.all(), {}, {}}}, {.lr = 0.1});
  sparse.backward(1);
  dense.backward(1);
  dense.weight.mutable_grad() = dense.weight.grad().to_dense();
  const auto norm = with_rows.clip_grad_norm_in_step(0.5);
  CHECK(norm.item<double>() == doctest::Approx(whole.clip_grad_norm_in_step(0.5).item<double>()));
  with_rows.step();
  whole.step();
  CHECK(torch::allclose(sparse.weight, dense.weight));
  CHECK(torch::allclose(sparse.bias, dense.bias));
}

TEST_CASE("SGD rounds bfloat16 rows so that small updates count") {
  const sparse_table::Table table(at::kBFloat16);
  etude::SGD sgd({{table.all(), {}, {}}}, {.lr = 1e-3});
  for (int step = 0; step < 200; ++step) {
    sgd.zero_grad();
    table.backward(0);  // 0.6 (x - 1), twice for the first row
    sgd.step();
  }
  const auto before = sparse_table::Table(at::kBFloat16).weight[0].to(at::kFloat);
  const auto expected = 1 + (before - 1) * std::pow(1 - 1e-3 * 0.6 * 2, 200);
  CHECK(torch::allclose(table.weight[0].to(at::kFloat), expected, 2e-2, 1e-2));
  CHECK_FALSE(torch::equal(table.weight[0].to(at::kFloat), before));
}

TEST_CASE("SGD refuses momentum and weight decay of a parameter with a sparse gradient") {
  const auto fails = [](const etude::SGDOptions& options, const char* why) {
    const sparse_table::Table table;
    etude::SGD sgd({{table.all(), {}, {}}}, options);
    table.backward(0);
    CHECK_THROWS_WITH_AS(sgd.step(), why, etude::ArgumentError);
  };
  fails({.momentum = 0.9},
        "parameter 'table.weight' has a sparse gradient, and momentum is 0.9: must be 0 for it");
  fails({.weight_decay = 0.1},
        "parameter 'table.weight' has a sparse gradient, and weight_decay is 0.1: must be 0 for it");
}

}  // namespace optim_sgd_test
