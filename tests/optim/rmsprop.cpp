#include <doctest/doctest.h>
#include <torch/optim/rmsprop.h>

#include "etude/optim/rmsprop.hpp"

#include "compare.hpp"

namespace optim_rmsprop_test {

TEST_CASE("RMSprop equals torch's over 1,000 steps") {
  for (bool centered : {false, true}) {
    for (double momentum : {0.0, 0.9}) {
      CAPTURE(centered);
      CAPTURE(momentum);
      COMPARE_WITH_TORCH(
          torch::optim::RMSpropOptions,
          beside_torch::ours<etude::RMSprop>(etude::RMSpropOptions{
              .lr = 0.003, .alpha = 0.95, .weight_decay = 0.1, .momentum = momentum, .centered = centered}),
          beside_torch::theirs<torch::optim::RMSprop>(
              torch::optim::RMSpropOptions(0.003).alpha(0.95).weight_decay(0.1).momentum(momentum).centered(
                  centered)),
          beside_torch::Tolerance());
    }
  }
}

}  // namespace optim_rmsprop_test
