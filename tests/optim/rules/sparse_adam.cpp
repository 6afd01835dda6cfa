#include <doctest/doctest.h>

#include <cmath>

#include "etude/base/error.hpp"
#include "etude/optim/rules/sparse_adam.hpp"
#include "optim/sparse_table.hpp"

namespace optim_sparse_adam_test {

using sparse_table::Table;

/// torch.optim.SparseAdam's update, row by row.
struct ByHand {
  torch::Tensor weight, mean, square;
  std::int64_t steps = 0;
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;

  void step(const torch::Tensor& gradient) {
    const torch::NoGradGuard no_grad;
    const auto rows = gradient.coalesce();
    const auto n = static_cast<double>(++steps);
    const double rate = lr * std::sqrt(1 - std::pow(beta2, n)) / (1 - std::pow(beta1, n));
    for (std::int64_t i = 0; i < rows._nnz(); ++i) {
      const auto at = rows._indices()[0][i].item<std::int64_t>();
      const auto row = rows._values()[i];
      mean[at].add_((row - mean[at]) * (1 - beta1));
      square[at].add_((row.square() - square[at]) * (1 - beta2));
      weight[at].sub_(rate * mean[at] / (square[at].sqrt() + eps));
    }
  }
};

TEST_CASE("SparseAdam updates the rows of the gradient and their moments, fused or not") {
  for (const bool fused : {false, true}) {
    CAPTURE(fused);
    const Table table;
    etude::SparseAdam adam({{table.table(), {}, {}}},
                           {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .fused = fused});
    ByHand expected{.weight = table.weight.detach().clone(),
                    .mean = torch::zeros({sparse_table::rows, sparse_table::width}),
                    .square = torch::zeros({sparse_table::rows, sparse_table::width}),
                    .lr = 0.01,
                    .beta1 = 0.8,
                    .beta2 = 0.95};
    for (std::int64_t step = 0; step < 60; ++step) {
      adam.zero_grad();
      table.backward(step, /*uses_bias=*/false);
      expected.step(table.weight.grad());
      adam.step();
    }
    CHECK(torch::allclose(table.weight, expected.weight, 1e-5, 1e-6));
    const auto state = adam.state();
    REQUIRE(state.size() == 3);
    CHECK(state[0].second.item<std::int64_t>() == 60);
    CHECK(torch::allclose(state[1].second, expected.mean, 1e-5, 1e-7));
    CHECK(torch::allclose(state[2].second, expected.square, 1e-5, 1e-7));
  }
}

TEST_CASE("SparseAdam equals the steps that Python's torch.optim.SparseAdam makes") {
  // torch 2.13: w = [[1., 2.], [3., 4.], [5., 6.]], gradients of rows 0, 0 and 2, then of row 2.
  const auto weight = torch::tensor({{1., 2.}, {3., 4.}, {5., 6.}}, at::kFloat).set_requires_grad(true);
  etude::SparseAdam adam({{{{"w", weight}}, {}, {}}}, {.lr = 0.1});
  const auto step = [&](const torch::Tensor& rows, const torch::Tensor& factor) {
    adam.zero_grad();
    (torch::embedding(weight, rows, -1, false, true) * factor).sum().backward();
    adam.step();
  };
  step(torch::tensor({0, 0, 2}), torch::tensor({{1., 2.}, {3., 4.}, {-1., 0.5}}, at::kFloat));
  step(torch::tensor({2}), torch::tensor({{2., 2.}}, at::kFloat));
  CHECK(torch::allclose(weight, torch::tensor({{0.9, 1.9}, {3., 4.}, {5.06338978, 5.81156254}}, at::kFloat),
                        1e-6, 1e-6));
}

TEST_CASE("SparseAdam refuses a dense gradient, and weight decay, and names the parameter") {
  const Table table;
  etude::SparseAdam adam({{table.all(), {}, {}}});
  table.backward(0);
  CHECK_THROWS_WITH_AS(
      adam.step(),
      "parameter 'bias' has a dense gradient, which SparseAdam can't use: must be trained by "
      "another optimizer",
      etude::ArgumentError);
  const Table decayed;
  etude::SparseAdam with_decay({{decayed.table(), {}, 0.1}});
  decayed.backward(0);
  CHECK_THROWS_WITH_AS(
      with_decay.step(),
      "parameter 'table.weight' has a sparse gradient, and weight_decay is 0.1: must be 0 for it",
      etude::ArgumentError);
}

TEST_CASE("a new SparseAdam with the state of another makes the same steps") {
  const Table whole, first, second;
  etude::SparseAdam uninterrupted({{whole.table(), {}, {}}}), before({{first.table(), {}, {}}});
  const auto train = [](const Table& table, etude::SparseAdam& adam, std::int64_t from, std::int64_t to) {
    for (auto step = from; step < to; ++step) {
      adam.zero_grad();
      table.backward(step, false);
      adam.step();
    }
  };
  train(whole, uninterrupted, 0, 20);
  train(first, before, 0, 10);
  second.weight.set_data(first.weight.detach().clone());
  etude::SparseAdam after({{second.table(), {}, {}}});
  after.load_state(before.state());
  train(second, after, 10, 20);
  CHECK(torch::equal(whole.weight, second.weight));
  const auto state = after.state(), expected = uninterrupted.state();
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(torch::equal(state[i].second, expected[i].second));
}

TEST_CASE("moments in the memory of the CPU give the same steps") {
  const Table here, offloaded;
  etude::SparseAdam adam({{here.table(), {}, {}}}), on_host({{offloaded.table(), {}, {}}});
  REQUIRE(on_host.offload_moments());
  for (std::int64_t step = 0; step < 10; ++step) {
    for (auto* each : {&adam, &on_host}) each->zero_grad();
    here.backward(step, false);
    offloaded.backward(step, false);
    for (auto* each : {&adam, &on_host}) each->step();
  }
  CHECK(torch::allclose(here.weight, offloaded.weight));
}

TEST_CASE("a gradient without rows counts as a step, and one with all indices sparse is updated alike") {
  const Table table;
  etude::SparseAdam adam({{table.table(), {}, {}}});
  const auto before = table.weight.detach().clone();
  torch::embedding(table.weight, torch::zeros({0}, at::kLong), -1, false, true).sum().backward();
  adam.step();
  CHECK(torch::equal(table.weight, before));
  CHECK(adam.state()[0].second.item<std::int64_t>() == 1);

  adam.zero_grad();
  table.weight.mutable_grad() =
      torch::sparse_coo_tensor(torch::tensor({{1, 7}, {2, 0}}), torch::tensor({1., -1.}, at::kFloat),
                               {sparse_table::rows, sparse_table::width});
  adam.step();
  const auto moved = (table.weight - before).detach();
  CHECK(moved.count_nonzero().item<std::int64_t>() == 2);
  CHECK(moved[1][2].item<double>() < 0);
  CHECK(moved[7][0].item<double>() == doctest::Approx(-moved[1][2].item<double>()).epsilon(1e-3));
}

}  // namespace optim_sparse_adam_test
