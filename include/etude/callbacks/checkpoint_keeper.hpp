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

/// Keeps copies of checkpoints in a folder of their own. A callback that has one hands its events on, and
/// decides which checkpoints it wants, under which names, and which copies go again. Its state is the copies
/// that are wanted and not there yet.
struct CheckpointKeeper {
  using this_callback = CheckpointKeeper;
  ETUDE_STRUCT(CheckpointKeeper,
               (StepsByName, wanted, "those whose checkpoint is yet to be written, by name"),
               (StepsByName, begun, "those whose checkpoint is being written"));

  /// Where training begins. `save_dir` is the folder, relative to the working directory; if it is empty, the
  /// folder is `name` in `output_dir`. Returns whether the training is a new one: nothing is wanted then.
  bool begin(const Context& e, const std::string& save_dir, std::string_view name);

  /// Asks for a checkpoint of this step, to be copied as `name`.
  void want(const Context& e, const std::string& name);

  /// With `save_async`, more copies may be requested before the checkpoint of this step is reported.
  void on(const SaveBegin& e);

  /// Copies the checkpoint under each of the names that are wanted of it, and returns these. Throws
  /// CheckpointError.
  std::vector<std::string> make(const Save& e);

  /// Removes a copy; warns where it can't be removed.
  void remove(const Context& e, const std::string& name) const;

  /// Whether a copy of this name is still to come.
  bool expects(const std::string& name) const { return wanted.contains(name) || begun.contains(name); }

  std::filesystem::path folder = {};  ///< of the copies
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/checkpoint_keeper.ipp"
#endif
