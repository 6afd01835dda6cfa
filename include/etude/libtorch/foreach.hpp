#pragma once

#include <torch/types.h>

#include <vector>

#if __has_include(<ATen/ops/_foreach_lerp.h>)
#include <ATen/ops/_foreach_lerp.h>
#define ETUDE_HAS_FOREACH_LERP 1
#else
#define ETUDE_HAS_FOREACH_LERP 0
#endif

/// Differences between LibTorch versions in operators on lists of tensors.
namespace etude::inline v0::libtorch {

/// Interpolates each of `tensors` linearly towards its end. One kernel launch for all of them on an
/// accelerator, since LibTorch 2.0.
inline void foreach_lerp_(const std::vector<torch::Tensor>& tensors, const std::vector<torch::Tensor>& ends,
                          double weight) {
  if (tensors.empty()) return;
#if ETUDE_HAS_FOREACH_LERP
  at::_foreach_lerp_(tensors, ends, weight);
#else
  for (std::size_t i = 0; i < tensors.size(); ++i) torch::Tensor(tensors[i]).lerp_(ends[i], weight);
#endif
}

}  // namespace etude::inline v0::libtorch
