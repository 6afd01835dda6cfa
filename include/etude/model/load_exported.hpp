#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/model/load_exported.hpp needs a library: link etude::exported"
#endif

#include <filesystem>

#include "etude/base/error.hpp"
#include "etude/model/exported_module.hpp"

namespace etude::inline v0 {

/// Reads a model saved by Python's torch.export.save in torch 2.8 or later; `tools/export.py` makes such
/// files. If the file has a graph for each mode ("model" or "train", and "eval"), the module's mode selects
/// the graph. With a single graph, operators that depend on the mode, such as dropout, follow the module's
/// mode. Parameters and buffers are on the CPU. Programs link etude::torch_file, which needs libzip. Throws a
/// CheckpointError that names the file and the problem.
ExportedModule load_exported(const std::filesystem::path& path);

}  // namespace etude::inline v0
