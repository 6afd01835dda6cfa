#pragma once

#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// Replaces the tensors by those of the first process, in few messages.
void broadcast_tensors(Communicator& communicator, const std::vector<torch::Tensor>& tensors);

/// The same for the state of a model. Throws DataError, in all processes, that names the first tensor whose
/// name, shape or dtype isn't the same in all of them.
void broadcast_state(Communicator& communicator,
                     const std::vector<std::pair<std::string, torch::Tensor>>& state);

}  // namespace etude::inline v0
