#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>

#include "etude/formats/exported_json.hpp"
#include "etude/model/exported_graph.hpp"

namespace etude::inline v0::detail {

/// The name of the value that an argument of a `.pt2` file refers to; empty for a constant.
std::string exported_name(const ExportedJson& argument, std::string_view where);

/// Reads a graph. The model was exported on `device`, where the graph runs until it is moved. Every name,
/// type and operator is checked before the graph can run: throws a CheckpointError that names the node if
/// this program doesn't have its operator, if an argument is missing or has the wrong type, or if a value is
/// used before it is defined or is defined twice.
ExportedGraph read_graph(const ExportedJson& graph, torch::Device device, std::string_view where);

}  // namespace etude::inline v0::detail
