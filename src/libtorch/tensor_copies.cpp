#include "etude/libtorch/tensor_copies.hpp"

#include <torch/types.h>

namespace etude::inline v0 {

void TensorCopies::refresh() {
  const torch::NoGradGuard no_grad;
  for (auto& [tensor, copy] : copies_) copy.copy_(tensor);
}

void TensorCopies::restore() const {
  const torch::NoGradGuard no_grad;
  for (const auto& [tensor, copy] : copies_)
    if (tensor.sizes() == copy.sizes() && tensor.scalar_type() == copy.scalar_type())
      torch::Tensor(tensor).copy_(copy);
    else
      tensor.set_data(copy.clone());
}

}  // namespace etude::inline v0
