#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/integrations/comet/journal.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

struct CometCallback;

namespace detail::comet {

/// The settings from a CometCallback's options and the environment.
struct Settings {
  bool disabled = false, online = false, log_assets = false;
  bool log_program = true;         ///< Log the program's path.
  bool log_host = true;            ///< Log machine, address, user and command.
  std::string mode;                ///< get_or_create, create or get
  std::string key;                 ///< The experiment's key.
  bool key_is_new = true;          ///< No other experiment can have this key.
  std::string project, workspace;  ///< Comet's defaults if empty.
  std::string name;                ///< Comet generates one if empty.
  std::vector<std::string> tags;
  std::filesystem::path offline_directory, spool_directory;
  std::string api_key, user, password;  ///< The last two are for a proxy in front of the server.
  std::string client_url, rest_url;     ///< Without credentials and without a trailing /.
  bool verify = true;                   ///< Verify the server's certificate.
  std::filesystem::path certificates;   ///< In PEM; empty for the system's.
  std::vector<Notice> notices;
};

/// Throws ArgumentError for invalid settings.
Settings settings_of(const CometCallback& callback, const TrainingArguments& args, const TrainerState& state);

/// Whether the environment has the settings that CometCallback needs, and doesn't disable it.
bool is_configured();

}  // namespace detail::comet
}  // namespace etude::inline v0
