#pragma once

#include <string>

#include "etude/model/model.hpp"

namespace etude::inline v0::detail::tensorboard {

/// The model for TensorBoard's graph page, as a serialised GraphDef: for a TorchScript module the operations
/// of its forward, each within its layer; for any other module its layers, without edges, because its forward
/// can't be inspected.
std::string graph_of(const Model& model);

}  // namespace etude::inline v0::detail::tensorboard
