#include "etude/libtorch/foreach.hpp"

#include <ATen/ops/_foreach_mul.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstddef>
#include <vector>

namespace etude::inline v0::libtorch {

void foreach_lerp_(const std::vector<torch::Tensor>& tensors, const std::vector<torch::Tensor>& ends,
                   double weight) {
  if (tensors.empty()) return;
#if ETUDE_HAS_FOREACH_LERP
  at::_foreach_lerp_(tensors, ends, weight);
#else
  for (std::size_t i = 0; i < tensors.size(); ++i) torch::Tensor(tensors[i]).lerp_(ends[i], weight);
#endif
}

void foreach_mul_(const std::vector<torch::Tensor>& tensors, const torch::Tensor& factor) {
  if (tensors.empty()) return;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
  at::_foreach_mul_(tensors, factor);
#else
  for (const auto& tensor : tensors) tensor.mul_(factor);
#endif
}

torch::Tensor multiply_and_check_(const std::vector<torch::Tensor>& tensors, double factor) {
  const auto options = tensors.front().options().dtype(torch::kFloat);
  auto found = at::zeros({}, options);
  if (has_amp_on_cpu || !tensors.front().is_cpu()) {
    at::_amp_foreach_non_finite_check_and_unscale_(tensors, found, at::full({}, factor, options));
    return found;
  }
  for (const auto& tensor : tensors) {
    found += at::isfinite(tensor).all().logical_not();
    tensor.mul_(factor);
  }
  return found;
}

}  // namespace etude::inline v0::libtorch
