#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

using StepsByName = std::map<std::string, std::int64_t>;

/// Copies of checkpoints that are wanted and not there yet. A callback that has one hands its events on.
struct CheckpointCopies {
  using this_callback = CheckpointCopies;
  ETUDE_STRUCT(CheckpointCopies,
               (StepsByName, wanted, "those whose checkpoint is yet to be written, by name"),
               (StepsByName, begun, "those whose checkpoint is being written"));

  /// Asks for a checkpoint of this step, to be copied as `name`.
  void want(const Context& e, const std::string& name);

  /// With `save_async` other copies may be wanted of this step before its checkpoint is told of.
  void on(const SaveBegin& e);

  /// Copies the checkpoint into `folder` under each of the names that are wanted of it, and returns these.
  /// Throws CheckpointError.
  std::vector<std::string> make(const Save& e, const std::filesystem::path& folder);

  /// Whether a copy of this name is still to come.
  bool expects(const std::string& name) const { return wanted.contains(name) || begun.contains(name); }
};

/// Removes a copy; says so where it can't be.
void remove_copy(const Context& e, const std::filesystem::path& copy);

/// The folder as an absolute path: as it is given, or where none is, `name` in `output_dir`.
std::filesystem::path folder_of_copies(const Context& e, const std::string& folder, std::string_view name);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/checkpoint_copies.ipp"
#endif
