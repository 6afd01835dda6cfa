#include "etude/libtorch/tensor_copies.hpp"

#include <torch/types.h>

namespace etude::inline v0 {

torch::Tensor copy_on_host(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

void TensorCopies::restore() const {
  const torch::NoGradGuard no_grad;
  for (const auto& [tensor, copy] : copies_)
    if (tensor.sizes() == copy.sizes() && tensor.scalar_type() == copy.scalar_type())
      torch::Tensor(tensor).copy_(copy);
    else
      tensor.set_data(copy.to(tensor.device(), /*non_blocking=*/false, /*copy=*/true));
}

}  // namespace etude::inline v0
