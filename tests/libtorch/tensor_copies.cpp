#include "etude/libtorch/tensor_copies.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

namespace libtorch_tensor_copies_test {

TEST_CASE("copies bring back values, shapes and types, in the same tensor") {
  const auto weight = torch::ones({2}).requires_grad_(), count = torch::zeros({}, torch::kLong);
  etude::TensorCopies copies;
  CHECK(copies.empty());
  copies.add(weight);
  copies.add(count);
  {
    const torch::NoGradGuard no_grad;
    torch::Tensor(weight).fill_(3);
  }
  const auto* data = weight.data_ptr();
  count.set_data(torch::full({3}, 2.5));
  copies.restore();
  CHECK(weight.equal(torch::ones({2})));
  CHECK(weight.data_ptr() == data);
  CHECK(count.equal(torch::zeros({}, torch::kLong)));
  // A change to a restored tensor doesn't change its copy.
  torch::Tensor(count).fill_(7);
  copies.restore();
  CHECK(count.item<std::int64_t>() == 0);
}

TEST_CASE("copies of copies bring back the same, also a copy that was made before") {
  const auto tensor = torch::zeros({2});
  etude::TensorCopies copies;
  copies.add(tensor, torch::ones({2}));
  const auto same = copies;
  torch::Tensor(tensor).fill_(2);
  same.restore();
  CHECK(tensor.equal(torch::ones({2})));
}

}  // namespace libtorch_tensor_copies_test
