#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "etude/integrations/comet/journal.hpp"
#include "etude/trainer_state.hpp"
#include "etude/training_arguments.hpp"

namespace etude {

struct CometCallback;

namespace detail::comet {

/// What a CometCallback's options and the environment come to.
struct Settings {
  bool disabled = false, online = false, log_assets = false;
  bool log_program = true;         ///< Its path.
  bool log_host = true;            ///< Machine, address, user and command.
  std::string mode;                ///< get_or_create, create or get
  std::string key;                 ///< Of the experiment.
  bool key_is_new = true;          ///< Nobody else can have an experiment of this key.
  std::string project, workspace;  ///< Comet's defaults if empty.
  std::string name;                ///< Comet makes one up if empty.
  std::vector<std::string> tags;
  std::filesystem::path offline_directory, spool_directory;
  std::string api_key, user, password;  ///< Credentials; the latter two for what stands before the server.
  std::string client_url, rest_url;     ///< Without credentials and a / at the end.
  bool verify = true;                   ///< The server's certificate;
  std::filesystem::path certificates;   ///< by these, in PEM, or the system's if empty.
  std::vector<Notice> notices;
};

/// Throws ArgumentError for what can't be.
Settings settings_of(const CometCallback& callback, const TrainingArguments& args, const TrainerState& state);

/// Whether the environment has what CometCallback needs, and doesn't switch it off.
bool is_configured();

}  // namespace detail::comet
}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/integrations/comet/impl/settings.ipp"
#endif
