#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

using StepsByName = std::map<std::string, std::int64_t>;

/// Keeps copies of checkpoints in a separate folder. It is a member of a callback, which forwards events to
/// it and decides which checkpoints to copy, under which names, and which copies to remove. Its state lists
/// the copies that are requested but not made yet.
struct CheckpointKeeper {
  ETUDE_STRUCT(CheckpointKeeper, (StepsByName, wanted, "copies whose checkpoint isn't written yet, by name"),
               (StepsByName, begun, "copies whose checkpoint is being written"));

  /// Called when training begins. `save_dir` is the folder, relative to the working directory; if it is
  /// empty, the folder is `name` in `output_dir`. Returns true if the training is new; requests from an
  /// earlier one are then dropped.
  bool begin(const Context& e, const std::string& save_dir, std::string_view name);

  /// Requests a checkpoint of this step, to be copied as `name`.
  void want(const Context& e, const std::string& name);

  /// With `save_async`, more copies may be requested before the checkpoint of this step is reported.
  void on(const SaveBegin& e);

  /// Copies the checkpoint under each of its requested names, and returns the names. Throws CheckpointError.
  std::vector<std::string> make(const Save& e);

  /// Removes a copy; warns on failure.
  void remove(const Context& e, const std::string& name) const;

  /// Whether a copy of this name will still be made.
  bool expects(const std::string& name) const { return wanted.contains(name) || begun.contains(name); }

  std::filesystem::path folder = {};  ///< for the copies
};

}  // namespace etude::inline v0
