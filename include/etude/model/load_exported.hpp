#pragma once

#ifndef ETUDE_EXPORTED
#error "etude/model/load_exported.hpp needs a library: link etude::exported"
#endif

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "etude/base/error.hpp"
#include "etude/formats/exported_json.hpp"
#include "etude/formats/pt2_archive.hpp"
#include "etude/io/entry_name.hpp"
#include "etude/model/exported_module.hpp"
#include "etude/model/exported_program.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {
namespace detail {

ExportedProgram load_program(const Pt2Archive& archive, const std::string& model,
                             Pt2Archive::NamedTensors& tensors);

/// The notes about a model that tools/export.py writes into the file.
struct ExportNotes {
  LossItems loss_items = LossItems::unknown;
  TiedNames tied;
  std::map<std::string, std::string> adapter;
};

/// Reads the notes and removes them from `files`.
ExportNotes take_notes(ModelFiles& files, std::string_view archive);

}  // namespace detail

/// Reads a model saved by Python's torch.export.save in torch 2.8 or later; `tools/export.py` makes such
/// files. If the file has a graph for each mode ("model" or "train", and "eval"), the module's mode selects
/// the graph. With a single graph, operators that depend on the mode, such as dropout, follow the module's
/// mode. Parameters and buffers are on the CPU. Programs link etude::torch_file, which needs libzip. Throws
/// CheckpointError that names the file and the problem.
ExportedModule load_exported(const std::filesystem::path& path);

}  // namespace etude::inline v0
