#pragma once

#ifndef ETUDE_COMET
#error "etude/integrations/comet.hpp needs a library: link etude::comet"
#endif

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

namespace detail::comet {
struct Run;
}

/// Logs a training to Comet, as Hugging Face's CometCallback and Comet's own client do: every log as metrics
/// with step and epoch (eval/loss, train/loss, ...), the arguments as parameters (args|learning_rate), the
/// model as graph text, system details, and with `log_assets` the files of output_dir at the end.
///
/// Samples are sent as `log_image`, `log_audio` and `log_text` of Comet's client send them; captions and the
/// names of texts are metadata.
///
/// It works online if there is a key (COMET_API_KEY, or the one that `comet login` stored) and
/// COMET_START_ONLINE isn't 0: logs wait on the disk until the server has them, and the training never waits.
/// Otherwise it writes an archive KEY.zip to `offline_directory` for `comet upload`, with a warning unless
/// that was requested. The archive is made when the callback is destroyed, when another training begins, or
/// right after an error or a signal. The next training with this directory makes the archive of a killed
/// process.
///
/// A resumed training continues its experiment, which then contains repeated steps twice; offline it writes
/// another archive, KEY-XXXXXX.zip. A second training from the start is a new experiment, unless an
/// experiment key is given. A trial of a search is an experiment with the trial's name and hyperparameters
/// (trial|width), and the search's name under "Search". Logs in the first process only.
///
/// An option wins over its environment variable. Throws ArgumentError at the beginning of training for
/// invalid options and variables, and for folders that can't be written; this includes a wrong COMET_MODE,
/// about which Hugging Face's callback only warns. Later errors are warnings and never stop a training.
///
/// Tested with comet_ml 3.58, its `comet offline` and `comet upload`; not with Comet's own servers.
struct CometCallback {
  ETUDE_STRUCT(
      CometCallback, (std::string, project_name, "empty is COMET_PROJECT_NAME, or else Comet's default", ""),
      (std::string, workspace, "empty is COMET_WORKSPACE, or else the default of the key", ""),
      (std::string, experiment_name,
       "empty is run_name, COMET_START_EXPERIMENT_NAME, COMET_EXPERIMENT_NAME, or a name that Comet "
       "generates",
       ""),
      (std::string, experiment_key, "32 to 50 letters and digits; empty is COMET_EXPERIMENT_KEY or a new one",
       ""),
      (std::string, mode, "get_or_create, create or get; empty is COMET_MODE or get_or_create", ""),
      (std::optional<bool>, online, "unset is COMET_START_ONLINE, or whether there is an API key"),
      (std::string, offline_directory,
       "folder of archives; empty is COMET_OFFLINE_DIRECTORY or .cometml-runs", ""),
      (std::optional<bool>, log_assets, "log the files of output_dir at the end; unset is COMET_LOG_ASSETS"),
      (std::vector<std::string>, tags, "tags of the experiment; empty is COMET_START_EXPERIMENT_TAGS"),
      (std::string, spool_directory, "folder of unsent entries; empty is ETUDE_SPOOL_DIR or .etude-spool",
       ""));
  struct State {
    ETUDE_STRUCT(State, (std::string, run_key, "the experiment that a resumed training continues", ""),
                 (std::int64_t, start_time, "its start time, in milliseconds since 1970", 0));
  };
  State state = {};
  std::string api_key = {};       ///< Instead of COMET_API_KEY. Not written to checkpoints.
  std::string url_override = {};  ///< Instead of COMET_URL_OVERRIDE: the server. Not written to checkpoints.
  nlohmann::ordered_json config =
      {};  ///< Further parameters, under config|..., like a Python model's config.
  detail::NotCopied<detail::comet::Run> open_run = {};  ///< The open experiment.

  /// Whether the environment has a key or requests offline experiments.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const Log& e);
  void on(const LogSamples& e);
  void on(const Predict& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

 private:
  void open(const Context& e);
  void log(const Context& e, const Metrics& metrics);
};

}  // namespace etude::inline v0
