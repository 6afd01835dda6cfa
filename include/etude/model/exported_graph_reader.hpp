#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>

#include "etude/formats/exported_json.hpp"
#include "etude/model/exported_graph.hpp"

namespace etude::inline v0::detail {

/// The name of the value that an argument of a `.pt2` file refers to; empty for a constant.
std::string exported_name(const ExportedJson& argument, std::string_view where);

/// Reads a graph. `device` is the one that the model was exported on, which the graph runs on until it is
/// moved. Every name, type and operator is checked before the graph can run: CheckpointError names the node
/// if this program doesn't have its operator, if an argument has the wrong type or is missing, and if a value
/// is used before it is defined or is defined twice.
ExportedGraph read_graph(const ExportedJson& graph, torch::Device device, std::string_view where);

}  // namespace etude::inline v0::detail
