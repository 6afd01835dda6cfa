#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/wandb/records.hpp"

namespace etude::inline v0 {

struct WandbCallback;

namespace detail {

/// A run's settings, combined from options, arguments and variables.
struct WandbSettings {
  bool enabled = true;
  bool is_online = false;  ///< The user may expect it to upload.
  std::filesystem::path directory = {};
  WandbRunInfo info = {};  ///< `id` is empty if any is acceptable.
  std::string resume = {};
  bool log_end = false, log_checkpoints = false;
  bool watch_gradients = false, watch_parameters = false;
  std::vector<std::string> warnings = {};
};

/// Whether the mode and WANDB_DISABLED leave the callback on. Throws ArgumentError for an unknown mode, and
/// for settings files that can't be read.
bool wandb_is_enabled(const WandbCallback& options);

/// Throws ArgumentError for options and variables that can't be honoured.
WandbSettings wandb_settings(const WandbCallback& options, const Context& e);

}  // namespace detail
}  // namespace etude::inline v0
