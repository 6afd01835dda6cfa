#pragma once

#include <torch/csrc/jit/api/module.h>

namespace etude::inline v0::detail::tensorboard {

class GraphWriter;

/// Adds the operations of a TorchScript module's forward.
void add_script(const torch::jit::Module& module, GraphWriter& graph);

}  // namespace etude::inline v0::detail::tensorboard
