#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

namespace detail {
class MLflowRun;
class MLflowSession;
}  // namespace detail

using MLflowTags = std::map<std::string, std::string>;

/// Sends a training to an MLflow server, as Hugging Face's callback of this name does: a run of its own with
/// the arguments as parameters, every log as metrics under their own names at `state.global_step`, and, if
/// asked for, the files of each checkpoint. A training that throws ends as FAILED, one that a signal ends as
/// KILLED, every other as FINISHED. One that is resumed from a checkpoint goes on in its run; steps that are
/// done again stand in the metrics' histories twice, for the server takes nothing back.
///
/// Nothing of it waits for the server: what is logged is written to a spool (`spool_directory`) and sent by a
/// thread. What couldn't be sent when the program ends is sent by the next training that has the same server
/// and directory. At the end of a training a server that answers is waited for, up to `drain_seconds`.
///
/// An option that isn't given is what the environment has, and MLflow's own variables of credentials and TLS
/// are honoured: docs/trackers.md lists them. There may be no credentials in `tracking_uri`, since options
/// are written to checkpoints; in MLFLOW_TRACKING_URI there may. `DISABLE_MLFLOW_INTEGRATION` turns it off.
///
/// Differs from Hugging Face's: an address is needed, since files and databases aren't written without a
/// server; checkpoints are plain files under `checkpoint-N/`, not a pickled model; a nested run has to be
/// told its parent. Speaks in the first process of all only.
///
/// Throws ArgumentError where training begins, for an address, tags or a number of the wrong form, a spool
/// that can't be written, and a run or experiment that the server, if it answers at once, doesn't have.
struct MLflowCallback {
  using this_callback = MLflowCallback;
  ETUDE_STRUCT(
      MLflowCallback, (std::string, tracking_uri, "the server's address; empty is MLFLOW_TRACKING_URI", ""),
      (std::string, experiment_name, "made if it isn't there; empty is MLFLOW_EXPERIMENT_NAME, or Default",
       ""),
      (std::string, experiment_id,
       "wins over the name; empty is MLFLOW_EXPERIMENT_ID, where no name is set at all", ""),
      (std::string, run_id, "a run of the server to go on with; empty is MLFLOW_RUN_ID, or a new run", ""),
      (std::string, parent_run_id, "the run that this one is part of; empty is MLFLOW_PARENT_RUN_ID", ""),
      (MLflowTags, tags, "of the run, beside those of MLFLOW_TAGS"),
      (std::optional<bool>, flatten_params, "nested parameters as a.b; unset is MLFLOW_FLATTEN_PARAMS"),
      (std::optional<std::int64_t>, max_log_params,
       "only the first so many parameters; -1 is all, unset is MLFLOW_MAX_LOG_PARAMS"),
      (std::optional<bool>, log_artifacts, "send checkpoints; unset is HF_MLFLOW_LOG_ARTIFACTS"),
      (std::string, spool_directory, "empty is ETUDE_SPOOL_DIR, or .etude-spool", ""),
      (std::optional<double>, drain_seconds,
       "the longest wait for the server at the end; unset is 10, or 600 where checkpoints are sent"),
      (std::string, run_key, "by which the run is found again: its tag etude.run"),
      (std::string, attached_to, "the run of the server that it goes on with, if that was asked for"));

  /// Whether `report_to = all` means it, too: MLFLOW_TRACKING_URI is the address of a server, and it isn't
  /// turned off.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const Log& e) { log(e, e.logs); }
  void on(const Save& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  /// Sends metrics of one's own, as a log is sent; for callbacks that hold this one.
  void log(const Context& e, const Metrics& metrics);

  nlohmann::ordered_json config = {};  ///< More parameters; those of the arguments win.

  detail::NotCopied<detail::MLflowSession> session = {};  ///< What is open.

 private:
  bool sends_checkpoints() const;
  std::unique_ptr<detail::MLflowRun> open(const Context& e, bool resumes);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/mlflow.ipp"
#endif
