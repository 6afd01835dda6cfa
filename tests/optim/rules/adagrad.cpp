#include <doctest/doctest.h>
#include <torch/optim/adagrad.h>

#include "etude/optim/rules/adagrad.hpp"

#include "etude/base/error.hpp"
#include "optim/compare.hpp"
#include "optim/sparse_table.hpp"

namespace optim_adagrad_test {

TEST_CASE("Adagrad equals torch's over 1,000 steps, fused or not") {
  for (bool fused : {false, true}) {
    CAPTURE(fused);
    COMPARE_WITH_TORCH(torch::optim::AdagradOptions,
                       beside_torch::ours<etude::Adagrad>(etude::AdagradOptions{.fused = fused}),
                       beside_torch::theirs<torch::optim::Adagrad>(torch::optim::AdagradOptions()),
                       beside_torch::Tolerance());
    COMPARE_WITH_TORCH(
        torch::optim::AdagradOptions,
        beside_torch::ours<etude::Adagrad>(etude::AdagradOptions{.lr = 0.1,
                                                                 .lr_decay = 0.01,
                                                                 .weight_decay = 0.1,
                                                                 .initial_accumulator_value = 0.5,
                                                                 .eps = 1e-6,
                                                                 .fused = fused}),
        beside_torch::theirs<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1)
                                                        .lr_decay(0.01)
                                                        .weight_decay(0.1)
                                                        .initial_accumulator_value(0.5)
                                                        .eps(1e-6)),
        beside_torch::Tolerance());
  }
}

TEST_CASE("Adagrad updates the rows of a sparse gradient as torch's does, fused or not") {
  for (const bool fused : {false, true}) {
    CAPTURE(fused);
    const sparse_table::Table etude, torch;
    etude::Adagrad ours({{etude.all(), {}, {}}},
                        {.lr = 0.1, .lr_decay = 0.01, .initial_accumulator_value = 0.5, .fused = fused});
    torch::optim::Adagrad theirs(
        {torch.weight, torch.bias},
        torch::optim::AdagradOptions(0.1).lr_decay(0.01).initial_accumulator_value(0.5));
    sparse_table::check_equal_steps(etude, ours, torch, theirs);
  }
}

TEST_CASE("Adagrad refuses weight decay of a parameter with a sparse gradient") {
  const sparse_table::Table table;
  etude::Adagrad adagrad({{table.all(), {}, {}}}, {.weight_decay = 0.01});
  table.backward(0);
  CHECK_THROWS_WITH_AS(
      adagrad.step(),
      "parameter 'table.weight' has a sparse gradient, and weight_decay is 0.01: must be 0 for it",
      etude::ArgumentError);
}

}  // namespace optim_adagrad_test
