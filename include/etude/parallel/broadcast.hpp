#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// Replaces the tensors by rank 0's, in few messages.
void broadcast_tensors(Communicator& communicator, const std::vector<torch::Tensor>& tensors);

/// The same for the state of a model. If a tensor's name, shape or dtype isn't the same in all processes,
/// throws DataError in all of them, naming the first such tensor.
void broadcast_state(Communicator& communicator,
                     const std::vector<std::pair<std::string, torch::Tensor>>& state);

}  // namespace etude::inline v0
