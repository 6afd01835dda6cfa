#pragma once

#ifndef ETUDE_MLFLOW_CLIENT
#error "etude/integrations/mlflow.hpp needs a library: link etude::mlflow"
#endif

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

namespace detail {
class MLflowRun;
class MLflowSession;
}  // namespace detail

using MLflowTags = std::map<std::string, std::string>;

/// Sends a training to an MLflow server, as Hugging Face's callback of this name does: a run with the
/// arguments as parameters, every log as metrics with unchanged names at `state.global_step`, and optionally
/// the files of each checkpoint. A training that throws ends as FAILED, one stopped by a signal as KILLED,
/// and any other as FINISHED. A training resumed from a checkpoint continues its run; repeated steps appear
/// twice in the metrics' histories, because the server can't remove values.
///
/// Samples are artifacts: pictures under `images/`, as `mlflow.log_image` names them, so that the run's page
/// shows them by step; texts as `texts/NAME/step-STEP.txt`, sounds as `audio/NAME/step-STEP.wav`.
///
/// Training never waits for the server: logs go to a spool (`spool_directory`) and a thread sends them.
/// Entries that are unsent when the program ends are sent by the next training with the same server and
/// directory. At the end of a training it waits for a responding server, up to `drain_seconds`.
///
/// Options that aren't given come from the environment, including MLflow's own variables for credentials and
/// TLS: docs/trackers.md lists them. `tracking_uri` mustn't contain credentials, since options are written to
/// checkpoints; MLFLOW_TRACKING_URI may. `DISABLE_MLFLOW_INTEGRATION` turns the callback off.
///
/// Differences from Hugging Face's callback: an address is required, since files and databases aren't written
/// without a server; checkpoints are plain files under `checkpoint-N/`, not a pickled model; a nested run
/// needs its parent's id, but the trials of a search are runs within one run of the search, or within the run
/// that MLFLOW_RUN_ID names. Logs in the first process only.
///
/// Throws ArgumentError at the beginning of training for an invalid address, tags or numbers, a spool that
/// can't be written, and for a run or experiment that doesn't exist, if the server responds at once.
struct MLflowCallback {
  ETUDE_STRUCT(
      MLflowCallback, (std::string, tracking_uri, "the server's address; empty is MLFLOW_TRACKING_URI", ""),
      (std::string, experiment_name,
       "created if it doesn't exist; empty is MLFLOW_EXPERIMENT_NAME, or Default", ""),
      (std::string, experiment_id, "wins over the name; empty is MLFLOW_EXPERIMENT_ID, unless a name is set",
       ""),
      (std::string, run_id, "an existing run to continue; empty is MLFLOW_RUN_ID, or a new run", ""),
      (std::string, parent_run_id, "the run that this one is part of; empty is MLFLOW_PARENT_RUN_ID", ""),
      (MLflowTags, tags, "tags of the run, in addition to MLFLOW_TAGS"),
      (std::optional<bool>, flatten_params, "send nested parameters as a.b; unset is MLFLOW_FLATTEN_PARAMS"),
      (std::optional<std::int64_t>, max_log_params,
       "maximum number of parameters; -1 is all, unset is MLFLOW_MAX_LOG_PARAMS"),
      (std::optional<bool>, log_artifacts, "send checkpoints; unset is HF_MLFLOW_LOG_ARTIFACTS"),
      (std::string, spool_directory, "empty is ETUDE_SPOOL_DIR, or .etude-spool", ""),
      (std::optional<double>, drain_seconds,
       "the longest wait for the server at the end; unset is 10, or 600 if checkpoints are sent"));
  struct State {
    ETUDE_STRUCT(State, (std::string, run_key, "identifies the run: its tag etude.run"),
                 (std::string, attached_to, "the existing run that it continues, if requested"));
  };
  State state = {};

  /// Whether `report_to = all` includes this callback: true if MLFLOW_TRACKING_URI is a server's address and
  /// the callback isn't turned off.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const Log& e) { log(e, e.logs); }
  void on(const Save& e);
  void on(const LogSamples& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  /// Sends additional metrics as it sends a log; for callbacks that contain this one.
  void log(const Context& e, const Metrics& metrics);

  nlohmann::ordered_json config = {};  ///< More parameters; the arguments' parameters win.

  detail::NotCopied<detail::MLflowSession> open_run = {};  ///< The open run.

 private:
  bool sends_checkpoints() const;
  std::unique_ptr<detail::MLflowRun> open(const Context& e, bool resumes);
};

}  // namespace etude::inline v0
