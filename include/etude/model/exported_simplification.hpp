#pragma once

#include "etude/model/exported_graph.hpp"

namespace etude::inline v0::detail {

/// Removes slices that take a whole tensor, because their backward pass would copy it, and fuses the eight
/// operators of Hugging Face's "gelu_new" into one, which gives the same numbers up to rounding.
void simplify(ExportedGraph& graph);

}  // namespace etude::inline v0::detail
