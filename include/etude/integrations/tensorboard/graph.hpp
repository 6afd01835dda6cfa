#pragma once

#include <string>

#include "etude/model/model.hpp"

namespace etude::detail::tensorboard {

/// The model as TensorBoard's graph page shows it, a serialised GraphDef: of a TorchScript module the
/// operations of its forward, each within the layer that does it; of another one its layers, without edges,
/// for nobody knows what its forward does with them.
std::string graph_of(const Model& model);

}  // namespace etude::detail::tensorboard

#ifndef ETUDE_COMPILED
#include "etude/integrations/tensorboard/impl/graph.ipp"
#endif
