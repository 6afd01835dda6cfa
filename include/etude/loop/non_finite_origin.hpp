#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "etude/base/function_ref.hpp"
#include "etude/data/batch.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// Where the first number of a training step that isn't finite came from.
struct NonFiniteOrigin {
  std::string text;                     ///< a phrase; empty if all numbers were finite
  std::vector<std::int64_t> rows = {};  ///< the examples of the batch that contain it, if known
};

/// Runs a batch forward and, if `backward`, backward, without changing gradients, and checks the numbers of
/// the weights, of the batch, and of each operator. An operator that makes inf or NaN from finite numbers is
/// named together with the module whose parameter it takes. If it takes none, the module is that of the last
/// operator that took one.
NonFiniteOrigin find_non_finite(const Model& model, const Batch& batch,
                                detail::FunctionRef<torch::Tensor(const Batch&)> compute_loss,
                                bool backward = true);

}  // namespace etude::inline v0
