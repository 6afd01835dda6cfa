#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace etude::detail::tensorboard {

/// How the finite numbers of a tensor are distributed, in the buckets of PyTorch's SummaryWriter: they grow
/// by a tenth each, away from 0 on both sides. Without the empty one that it puts before the first, which
/// TensorBoard's fast loader shows as one that goes backwards: the first begins with `min`.
struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits;  ///< the right edge of each bucket
  std::vector<double> counts;
  std::int64_t not_finite = 0;  ///< numbers that were left out
};

/// Of a sparse tensor the values that it has, of a complex one real and imaginary parts. With `num` 0 it has
/// no finite number.
Histogram histogram_of(const at::Tensor& tensor);

}  // namespace etude::detail::tensorboard

#ifndef ETUDE_COMPILED
#include "etude/integrations/tensorboard/impl/histogram.ipp"
#endif
