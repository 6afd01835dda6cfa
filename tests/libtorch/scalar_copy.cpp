#include "etude/libtorch/scalar_copy.hpp"

#include <doctest/doctest.h>
#include <torch/torch.h>

namespace libtorch_scalar_copy_test {

TEST_CASE("a value is copied as it was when the copy began, from any device, shape and dtype") {
  std::vector<torch::Device> devices{torch::kCPU};
  if (torch::cuda::is_available()) devices.emplace_back(torch::kCUDA);
  for (const auto device : devices) {
    etude::ScalarCopy copy;
    CHECK_FALSE(copy.pending());
    for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
      auto value = torch::full({1, 1}, 1.5, torch::dtype(dtype).device(device));
      copy.begin(value);
      CHECK(copy.pending());
      value.fill_(7);
      CHECK(copy.get() == 1.5);
      CHECK_FALSE(copy.pending());
    }
    copy.begin(torch::full({}, 2.5, device));
    CHECK_FALSE(etude::ScalarCopy(copy).pending());
    CHECK(copy.get() == 2.5);
  }
}

}  // namespace libtorch_scalar_copy_test
