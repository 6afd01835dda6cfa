#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/model/load_exported.hpp needs a library: link etude::exported"
#endif

#include <filesystem>

#include "etude/base/error.hpp"
#include "etude/model/exported_module.hpp"

namespace etude::inline v0 {

/// Options of `load_exported`.
struct LoadExportedOptions {
  /// Whether the file's compiled graphs may be loaded, if it has any: they are native code, which can do
  /// anything that the program can. Set it only for files that you trust. If false, they aren't read.
  bool run_compiled_code = false;
};

/// Reads a model saved by Python's torch.export.save in torch 2.8 or later; `tools/export.py` makes such
/// files. If the file has a graph for each mode ("model" or "train", and "eval"), the module's mode selects
/// the graph. With a single graph, operators that depend on the mode, such as dropout, follow the module's
/// mode. Parameters and buffers are on the CPU. A compiled graph is loaded only when a training that may use
/// it begins. Programs link etude::exported, which needs libzip. Throws a CheckpointError that names the file
/// and the problem.
ExportedModule load_exported(const std::filesystem::path& path, const LoadExportedOptions& options = {});

}  // namespace etude::inline v0
