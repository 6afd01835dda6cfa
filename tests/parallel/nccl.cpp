#include "etude/parallel/nccl.hpp"

#include <doctest/doctest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <memory>

#include "etude/base/error.hpp"

namespace parallel_nccl_test {

TEST_CASE("NCCL refuses a device that isn't a GPU") {
  CHECK_THROWS_WITH_AS(etude::over_nccl(std::make_unique<etude::Communicator>(), torch::kCPU),
                       "the device of NCCL is cpu: must be a GPU", etude::ArgumentError);
}

TEST_CASE("one process sends to itself over NCCL where there is a GPU, and is refused elsewhere") {
  const auto join = [] {
    return etude::over_nccl(std::make_unique<etude::Communicator>(), {torch::kCUDA, 0});
  };
  if (!etude::has_nccl() || !torch::cuda::is_available()) {
    CHECK_THROWS_AS(join(), etude::Error);
    return;
  }
  const auto alone = join();
  const auto values = torch::arange(6, torch::TensorOptions(torch::kFloat).device(torch::kCUDA));
  const auto kept = values.clone();
  alone->sum(values);
  alone->begin_sum_parts(values)();
  alone->gather_parts(values);
  alone->broadcast(values, 0);
  CHECK(torch::equal(values, kept));
  CHECK(torch::equal(alone->gather(values), kept.unsqueeze(0)));
}

}  // namespace parallel_nccl_test
