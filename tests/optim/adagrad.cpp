#include <doctest/doctest.h>
#include <torch/optim/adagrad.h>

#include "etude/optim/adagrad.hpp"

#include "compare.hpp"

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

}  // namespace optim_adagrad_test
