#pragma once

#ifndef ETUDE_AZUREML
#error "etude/integrations/azureml.hpp needs a library: link etude::azureml"
#endif

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/mlflow.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Sends every log to an Azure ML workspace through its MLflow interface, as metrics with unchanged names at
/// `state.global_step`. It logs what Hugging Face's callback of this name logs, plus the step. A job of Azure
/// ML needs no settings: the callback logs to the job's run, which the platform ends, and renews the job's
/// token. Elsewhere `MLFLOW_TRACKING_TOKEN` must be an access token for https://management.azure.com, which
/// isn't renewed, and the callback creates and ends the run as MLflowCallback does. A trial of a search is a
/// separate run with its hyperparameters, nested in the job's run or, outside a job, in one run for the
/// search.
///
/// Samples are artifacts, as with MLflowCallback, if the workspace accepts them through its MLflow interface.
///
/// Sends, keeps unsent entries and resumes as MLflowCallback does. Parameters are sent if `log_params` is
/// set. Checkpoints aren't, because Azure stores them itself; HF_MLFLOW_LOG_ARTIFACTS causes a warning.
///
/// Tested with an MLflow server behind Azure's addresses, TLS and tokens, never with Azure itself.
///
/// Throws ArgumentError at the beginning of training, as MLflowCallback does, and without a token.
struct AzureMLCallback {
  ETUDE_STRUCT(AzureMLCallback,
               (std::string, tracking_uri, "azureml:// or https://; empty is MLFLOW_TRACKING_URI", ""),
               (std::string, experiment_name,
                "created if it doesn't exist; empty is MLFLOW_EXPERIMENT_NAME, or Default", ""),
               (std::string, experiment_id, "wins over the name; empty is MLFLOW_EXPERIMENT_ID", ""),
               (std::string, run_id, "a run to log to; empty is MLFLOW_RUN_ID, or a new run", ""),
               (MLflowTags, tags, "tags of the run, in addition to MLFLOW_TAGS"),
               (bool, log_params, "also send the arguments as parameters", false),
               (std::string, spool_directory, "empty is ETUDE_SPOOL_DIR, or .etude-spool", ""),
               (double, drain_seconds, "the longest wait for the server at the end", 10.0));
  struct State {
    ETUDE_STRUCT(State, (std::string, run_key, "identifies the run: its tag etude.run"),
                 (std::string, attached_to, "the existing run that it logs to, if any"));
  };
  State state = {};

  /// Whether `report_to = all` includes this callback: true if MLFLOW_TRACKING_URI begins with azureml://.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const Log& e);
  void on(const LogSamples& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  nlohmann::ordered_json config = {};  ///< More parameters, with `log_params`; the arguments' parameters win.

  detail::NotCopied<detail::MLflowSession> open_run = {};  ///< The open run.

 private:
  std::unique_ptr<detail::MLflowRun> open(const Context& e, bool resumes);
};

}  // namespace etude::inline v0
