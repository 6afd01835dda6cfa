#include <doctest/doctest.h>
#include <torch/optim/rmsprop.h>

#include "etude/optim/rules/rmsprop.hpp"

#include "etude/optim/cpu_kernels.hpp"
#include "optim/compare.hpp"

namespace optim_rmsprop_test {

TEST_CASE("RMSprop equals torch's over 1,000 steps, in one pass and by operators") {
  for (const bool in_one_pass : {true, false}) {
    for (const bool centered : {false, true}) {
      for (const double momentum : {0.0, 0.9}) {
        CAPTURE(in_one_pass);
        CAPTURE(centered);
        CAPTURE(momentum);
        etude::detail::uses_cpu_kernels() = in_one_pass;
        COMPARE_WITH_TORCH(
            torch::optim::RMSpropOptions,
            beside_torch::ours<etude::RMSprop>(etude::RMSpropOptions{
                .lr = 0.003, .alpha = 0.95, .weight_decay = 0.1, .momentum = momentum, .centered = centered}),
            beside_torch::theirs<torch::optim::RMSprop>(
                torch::optim::RMSpropOptions(0.003).alpha(0.95).weight_decay(0.1).momentum(momentum).centered(
                    centered)),
            beside_torch::Tolerance());
        etude::detail::uses_cpu_kernels() = true;
      }
    }
  }
}

}  // namespace optim_rmsprop_test
