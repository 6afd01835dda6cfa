#pragma once

#include <torch/types.h>

#include <vector>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// Sums the gradients of `parameters` over all processes. In each process, a gradient is sparse (COO) and
/// coalesced, dense or undefined. The results are sparse and coalesced, and equal in all processes; a sum is
/// undefined if all its gradients are. Only indices and values are sent. Throws DataError if gradients have
/// different numbers of sparse dimensions. All processes must call it.
std::vector<torch::Tensor> sums_of_sparse(Communicator& communicator,
                                          const std::vector<torch::Tensor>& gradients,
                                          const std::vector<torch::Tensor>& parameters);

}  // namespace etude::inline v0
