#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/mlflow.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// Sends every log to a workspace of Azure ML, through its MLflow interface, as metrics under their own names
/// at `state.global_step`: what Hugging Face's callback of this name logs, with the step, which that one
/// hasn't. In a job of Azure ML nothing has to be set: it logs to the job's run, which the platform ends, and
/// renews the job's token. Elsewhere `MLFLOW_TRACKING_TOKEN` has to be an access token for
/// https://management.azure.com, which isn't renewed, and the run is made, and ended as MLflowCallback does.
///
/// How it sends, keeps what couldn't be sent, and goes on when a training is resumed, is as in
/// MLflowCallback. Parameters are sent if `log_params` says so. Checkpoints aren't: Azure keeps them in a
/// store of its own, and HF_MLFLOW_LOG_ARTIFACTS is answered with a warning.
///
/// Tried with an MLflow server behind Azure's addresses, TLS and tokens, and never with Azure itself.
///
/// Throws ArgumentError where training begins, as MLflowCallback does, and without a token.
struct AzureMLCallback {
  using this_callback = AzureMLCallback;
  ETUDE_STRUCT(AzureMLCallback,
               (std::string, tracking_uri, "azureml:// or https://; empty is MLFLOW_TRACKING_URI", ""),
               (std::string, experiment_name,
                "made if it isn't there; empty is MLFLOW_EXPERIMENT_NAME, or Default", ""),
               (std::string, experiment_id, "wins over the name; empty is MLFLOW_EXPERIMENT_ID", ""),
               (std::string, run_id, "a run to log to; empty is MLFLOW_RUN_ID, or a new run", ""),
               (MLflowTags, tags, "of the run, beside those of MLFLOW_TAGS"),
               (bool, log_params, "send the arguments as parameters, too", false),
               (std::string, spool_directory, "empty is ETUDE_SPOOL_DIR, or .etude-spool", ""),
               (double, drain_seconds, "the longest wait for the server at the end", 10.0),
               (std::string, run_key, "by which the run is found again: its tag etude.run"),
               (std::string, attached_to, "the run that was there, if it logs to one"));

  /// Whether `report_to = all` means it, too: MLFLOW_TRACKING_URI begins with azureml://.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const Log& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  nlohmann::ordered_json config = {};  ///< More parameters, with `log_params`; those of the arguments win.

  detail::NotCopied<detail::MLflowSession> session = {};  ///< What is open.

 private:
  std::unique_ptr<detail::MLflowRun> open(const Context& e, bool resumes);
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/integrations/impl/azureml.ipp"
#endif
