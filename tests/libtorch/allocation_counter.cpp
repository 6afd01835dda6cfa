#include "etude/libtorch/allocation_counter.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include "etude/base/error.hpp"
#include "etude/libtorch/storage.hpp"

namespace libtorch_allocation_counter_test {

TEST_CASE("tensors that come and go are counted, with the most at once") {
  auto before = torch::empty({1000});
  etude::AllocationCounter counter(torch::kCPU);
  CHECK(counter.allocated() == 0);
  auto kept = torch::empty({100}, torch::kFloat);
  { const auto gone = torch::empty({250}, torch::kDouble); }
  CHECK(counter.allocated() == 400);
  CHECK(counter.peak() == 2400);
  before = torch::Tensor();  // not counted when it was allocated
  CHECK(counter.allocated() == 400);
  counter.reset_peak();
  CHECK(counter.peak() == 400);
  const auto view = kept.narrow(0, 10, 5);
  kept = torch::Tensor();
  CHECK(counter.allocated() == 400);  // the view keeps it
}

TEST_CASE("memory of another device, or from before or after, doesn't count") {
  torch::Tensor kept;
  {
    const etude::AllocationCounter other(torch::kCUDA);
    kept = torch::empty({100});
    CHECK(other.peak() == 0);
  }
  const etude::AllocationCounter counter(torch::kCPU);
  kept = torch::Tensor();
  CHECK(counter.allocated() == 0);
}

TEST_CASE("two counters at once are an error") {
  const etude::AllocationCounter counter(torch::kCPU);
  CHECK_THROWS_WITH_AS(etude::AllocationCounter{torch::kCPU},
                       "memory can't be counted while a profiler counts it in the same thread", etude::Error);
}

TEST_CASE("a storage that tensors share counts once") {
  const auto all = torch::zeros({10, 4});
  CHECK(etude::libtorch::storage_bytes({all, all[0], torch::Tensor(), torch::zeros({2}, torch::kLong)}) ==
        160 + 16);
}

}  // namespace libtorch_allocation_counter_test
