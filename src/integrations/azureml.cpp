#include "etude/integrations/azureml.hpp"

#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/integrations/azureml/tokens.hpp"
#include "etude/integrations/mlflow/run.hpp"
#include "etude/integrations/mlflow/session.hpp"
#include "etude/integrations/mlflow/variables.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/tracked_run.hpp"

namespace etude::inline v0 {

bool AzureMLCallback::is_available() { return detail::mlflow_uri_begins({"azureml://"}); }

std::unique_ptr<detail::MLflowRun> AzureMLCallback::open(const Context& e, bool resumes) {
  detail::MLflowRunOptions options{.callback = "AzureMLCallback", .tracker = "azureml"};
  options.http = detail::mlflow_http_options();
  options.http.user = options.http.password = "";
  options.address = detail::mlflow_address(tracking_uri, options.http, "azureml");
  options.http.user = options.http.password = "";
  if (options.http.bearer.empty())
    options.http.bearer = detail::environment("AZUREML_RUN_TOKEN").value_or("");
  if (options.http.bearer.empty())
    throw ArgumentError(
        "neither MLFLOW_TRACKING_TOKEN nor AZUREML_RUN_TOKEN is set: must be an access token, such as `az "
        "account get-access-token --resource https://management.azure.com/` gives");
  options.spool_directory = detail::spool_directory(spool_directory);
  options.drain_seconds = drain_seconds;
  options.experiment_name = detail::option_or_environment(experiment_name, "MLFLOW_EXPERIMENT_NAME");
  options.experiment_id = detail::option_or_environment(experiment_id, "MLFLOW_EXPERIMENT_ID");
  options.attach_to = detail::option_or_environment(run_id, "MLFLOW_RUN_ID");
  options.name = detail::run_name_of(detail::tracked_arguments(e));
  options.tags = detail::mlflow_tags(tags);
  const auto tokens = detail::azureml_tokens(
      detail::azureml_token_url(options.address, options.experiment_id, options.attach_to),
      detail::azureml_refresh_interval());
  options.renew_token = [tokens](detail::HttpClient& http, bool is_refused) {
    return tokens->renewed(http, is_refused);
  };
  detail::nest_trial(options, e, run_id);
  detail::identify_mlflow_run(options, state.run_key, state.attached_to, resumes);
  state.run_key = options.key;
  state.attached_to = options.attach_to;
  options.ends = options.attach_to.empty();
  if (options.experiment_name.empty() && options.experiment_id.empty()) options.experiment_name = "Default";
  if (detail::environment_says("HF_MLFLOW_LOG_ARTIFACTS"))
    message(e.args, LogLevel::warning,
            "AzureMLCallback: HF_MLFLOW_LOG_ARTIFACTS is set, and checkpoints aren't sent: Azure ML keeps "
            "them in its own store");

  auto run = std::make_unique<detail::MLflowRun>(std::move(options), e.args);
  if (log_params)
    run->log_params(detail::members(detail::run_parameters(e, config)), -1);
  else if (e.state.is_hyper_param_search)
    run->log_params(detail::members(e.state.trial_params), -1);
  return run;
}

void AzureMLCallback::on(const TrainBegin& e) {
  if (auto* session = detail::MLflowSession::of(open_run, e))
    session->begin(e, [this](const Context& context, bool resumes) { return open(context, resumes); });
}

void AzureMLCallback::on(const Log& e) {
  if (auto* session = detail::MLflowSession::of(open_run, e))
    session->log(e, e.logs, [this](const Context& context, bool resumes) { return open(context, resumes); });
}

void AzureMLCallback::on(const LogSamples& e) {
  if (auto* session = detail::MLflowSession::of(open_run, e))
    session->log(e, [this](const Context& context, bool resumes) { return open(context, resumes); });
}

void AzureMLCallback::on(const Stop& e) {
  if (open_run) open_run->stop(e);
}

void AzureMLCallback::on(const TrainError&) {
  if (open_run) open_run->fail();
}

void AzureMLCallback::on(const TrainEnd&) {
  if (open_run) open_run->end();
}

}  // namespace etude::inline v0
