#include "etude/libtorch/tensor_copies.hpp"

#include <torch/types.h>

namespace etude::inline v0 {

void TensorCopies::restore() const {
  const torch::NoGradGuard no_grad;
  for (const auto& [tensor, copy] : copies_)
    if (tensor.sizes() == copy.sizes() && tensor.scalar_type() == copy.scalar_type())
      torch::Tensor(tensor).copy_(copy);
    else
      tensor.set_data(copy.to(tensor.device(), /*non_blocking=*/false, /*copy=*/true));
}

}  // namespace etude::inline v0
