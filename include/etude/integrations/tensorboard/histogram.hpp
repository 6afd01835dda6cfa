#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace etude::inline v0::detail::tensorboard {

/// The distribution of a tensor's finite numbers, in the buckets of PyTorch's SummaryWriter: on both sides of
/// 0, each bucket is a tenth wider than the previous one. PyTorch's empty first bucket is left out, because
/// TensorBoard's fast loader shows it as going backwards; the first bucket begins at `min`.
struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits;  ///< the right edge of each bucket
  std::vector<double> counts;
  std::int64_t not_finite = 0;  ///< numbers left out
};

/// For a sparse tensor, its stored values; for a complex one, real and imaginary parts. `num` is 0 without
/// finite numbers.
Histogram histogram_of(const at::Tensor& tensor);

}  // namespace etude::inline v0::detail::tensorboard
