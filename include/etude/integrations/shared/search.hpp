#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/shared/arguments.hpp"

namespace etude::inline v0::detail {

/// The search that a trial belongs to, for trackers that show its trials together.
struct TrackedSearch {
  std::filesystem::path folder;  ///< The search's folder, the same for all its trials.
  std::string name;              ///< `run_name` if the user has set it, or else the folder's.
  bool has_folders = false;      ///< Each trial has a folder with its name in `folder`.
};

/// Unset for a training that isn't a trial.
std::optional<TrackedSearch> search_of(const Context& e);

}  // namespace etude::inline v0::detail
