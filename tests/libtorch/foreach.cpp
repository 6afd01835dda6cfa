#include "etude/libtorch/foreach.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

namespace libtorch_foreach_test {

TEST_CASE("foreach_mul_ multiplies each tensor in place and keeps its dtype") {
  const std::vector<torch::Tensor> tensors{torch::full({2, 3}, 2.f), torch::full({1}, 4.f, torch::kBFloat16)};
  const auto* const data = tensors[0].data_ptr();
  etude::libtorch::foreach_mul_(tensors, torch::full({}, 1.5f));
  CHECK(tensors[0].data_ptr() == data);
  CHECK(tensors[0].equal(torch::full({2, 3}, 3.f)));
  CHECK(tensors[1].equal(torch::full({1}, 6.f, torch::kBFloat16)));
  etude::libtorch::foreach_mul_({}, torch::full({}, 1.5f));
}

}  // namespace libtorch_foreach_test
