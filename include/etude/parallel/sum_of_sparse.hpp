#pragma once

#include <torch/types.h>

#include <vector>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// The sums over all processes of the gradients of `parameters`, each of which is sparse (COO) and coalesced,
/// dense or undefined in this process. The results are sparse and coalesced, equal in all processes, and
/// undefined if all are; only indices and values are sent. Throws DataError if they have different numbers of
/// sparse dimensions. All processes must call it.
std::vector<torch::Tensor> sums_of_sparse(Communicator& communicator,
                                          const std::vector<torch::Tensor>& gradients,
                                          const std::vector<torch::Tensor>& parameters);

}  // namespace etude::inline v0
