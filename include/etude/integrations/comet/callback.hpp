#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

namespace detail::comet {
struct Run;
}

/// Logs to Comet what a training does, as Hugging Face's CometCallback and Comet's own client do: every log
/// as metrics with step and epoch (eval/loss, train/loss, ...), the arguments as parameters
/// (args|learning_rate), the model as graph text, facts of the system, and with `log_assets` the files of
/// output_dir at the end.
///
/// Online where there is a key (COMET_API_KEY, or what `comet login` has stored) and COMET_START_ONLINE isn't
/// 0: what is logged waits on the disk until the server has it, and the training never waits. Else into an
/// archive of `offline_directory`, KEY.zip, that `comet upload` takes, with a warning where nobody has asked
/// for that. It is made when the callback is destroyed, when another training begins, or at once after an
/// error or a signal. What a killed process had written, the next one that trains with this directory makes
/// an archive of.
///
/// A training that is resumed goes on in the same experiment, and steps that are done again are in it twice;
/// offline that gives another archive, KEY-XXXXXX.zip. A second training from the start is another
/// experiment, unless its key is given. Speaks in the first process only.
///
/// An option wins over its environment variable. Throws ArgumentError where training begins for options and
/// variables that can't be, and for folders that can't be written; a wrong COMET_MODE is one, where Hugging
/// Face's only warns. Nothing after that stops a training: faults are warnings.
///
/// Tried with comet_ml 3.58, its `comet offline` and `comet upload`; not with Comet's own servers.
struct CometCallback {
  using this_callback = CometCallback;
  ETUDE_STRUCT(
      CometCallback,
      (std::string, project_name, "empty is COMET_PROJECT_NAME, or else Comet's own choice", ""),
      (std::string, workspace, "empty is COMET_WORKSPACE, or else the default of the key", ""),
      (std::string, experiment_name,
       "empty is run_name, COMET_START_EXPERIMENT_NAME, COMET_EXPERIMENT_NAME, or what Comet makes up", ""),
      (std::string, experiment_key, "32 to 50 letters and digits; empty is COMET_EXPERIMENT_KEY or a new one",
       ""),
      (std::string, mode, "get_or_create, create or get; empty is COMET_MODE or get_or_create", ""),
      (std::optional<bool>, online, "unset is COMET_START_ONLINE, or whether there is a key to the server"),
      (std::string, offline_directory, "for archives; empty is COMET_OFFLINE_DIRECTORY or .cometml-runs", ""),
      (std::optional<bool>, log_assets, "log the files of output_dir at the end; unset is COMET_LOG_ASSETS"),
      (std::vector<std::string>, tags, "of the experiment; empty is COMET_START_EXPERIMENT_TAGS"),
      (std::string, spool_directory, "for what waits to be sent; empty is ETUDE_SPOOL_DIR or .etude-spool",
       ""),
      (std::string, run_key, "the experiment that a resumed training goes on with", ""),
      (std::int64_t, start_time, "when that one began, in milliseconds since 1970", 0));
  std::string api_key = {};       ///< Instead of COMET_API_KEY. Not written to checkpoints.
  std::string url_override = {};  ///< Instead of COMET_URL_OVERRIDE: the server. Not written to checkpoints.
  nlohmann::ordered_json config =
      {};  ///< Further parameters, under config|...: what Python has as model.config.
  detail::NotCopied<detail::comet::Run> run = {};  ///< The experiment that is open.

  /// Whether the environment has a key or asks for offline experiments.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const Log& e);
  void on(const Predict& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

 private:
  void open(const Context& e);
  void log(const Context& e, const Metrics& metrics);
};

}  // namespace etude
