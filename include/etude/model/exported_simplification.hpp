#pragma once

#include "etude/model/exported_graph.hpp"

namespace etude::inline v0::detail {

/// Takes slices out of a graph that take everything, whose backward pass would copy, and makes one operator
/// of the eight that Hugging Face's "gelu_new" is made of. The latter gives the same numbers up to rounding.
void simplify(ExportedGraph& graph);

}  // namespace etude::inline v0::detail
