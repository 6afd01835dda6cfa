#include "etude/integrations/mlflow.hpp"

#include <utility>

#include "etude/base/message.hpp"
#include "etude/integrations/mlflow/run.hpp"
#include "etude/integrations/mlflow/session.hpp"
#include "etude/integrations/mlflow/variables.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/tracked_run.hpp"

namespace etude::inline v0 {

bool MLflowCallback::is_available() {
  return detail::mlflow_uri_begins({"http://", "https://"}) &&
         !detail::environment_says("DISABLE_MLFLOW_INTEGRATION");
}

bool MLflowCallback::sends_checkpoints() const {
  return log_artifacts.value_or(detail::environment_says("HF_MLFLOW_LOG_ARTIFACTS"));
}

std::unique_ptr<detail::MLflowRun> MLflowCallback::open(const Context& e, bool resumes) {
  if (detail::environment_says("DISABLE_MLFLOW_INTEGRATION")) {
    message(e.args, LogLevel::info, "MLflowCallback: DISABLE_MLFLOW_INTEGRATION turns it off");
    return nullptr;
  }
  detail::MLflowRunOptions options{.callback = "MLflowCallback", .tracker = "mlflow"};
  options.http = detail::mlflow_http_options();
  options.address = detail::mlflow_address(tracking_uri, options.http);
  options.spool_directory = detail::spool_directory(spool_directory);
  options.drain_seconds = drain_seconds.value_or(sends_checkpoints() ? 600 : 10);
  options.experiment_name = experiment_name;
  options.experiment_id = experiment_id;
  if (experiment_name.empty() && experiment_id.empty()) {
    options.experiment_name = detail::environment("MLFLOW_EXPERIMENT_NAME").value_or("");
    if (options.experiment_name.empty())
      options.experiment_id = detail::environment("MLFLOW_EXPERIMENT_ID").value_or("");
  }
  options.attach_to = detail::option_or_environment(run_id, "MLFLOW_RUN_ID");
  options.parent_run_id = detail::option_or_environment(parent_run_id, "MLFLOW_PARENT_RUN_ID");
  options.name = detail::run_name_of(detail::tracked_arguments(e));
  detail::nest_trial(options, e, run_id);
  options.tags = detail::mlflow_tags(tags);
  const auto at_most = detail::mlflow_max_params(max_log_params);
  if (options.parent_run_id.empty() && options.search.is_null() &&
      detail::environment_says("MLFLOW_NESTED_RUN"))
    message(e.args, LogLevel::warning,
            "MLflowCallback: MLFLOW_NESTED_RUN is set, but the run isn't nested: set parent_run_id or "
            "MLFLOW_PARENT_RUN_ID to its parent");

  detail::identify_mlflow_run(options, state.run_key, state.attached_to, resumes);
  state.run_key = options.key;
  state.attached_to = options.attach_to;
  if (options.experiment_name.empty() && options.experiment_id.empty()) options.experiment_id = "0";

  auto run = std::make_unique<detail::MLflowRun>(std::move(options), e.args);
  const auto parameters = detail::run_parameters(e, config);
  const bool flat = flatten_params.value_or(detail::environment_says("MLFLOW_FLATTEN_PARAMS"));
  run->log_params(flat ? detail::flattened(parameters) : detail::members(parameters), at_most);
  return run;
}

void MLflowCallback::on(const TrainBegin& e) {
  if (auto* session = detail::MLflowSession::of(open_run, e))
    session->begin(e, [this](const Context& context, bool resumes) { return open(context, resumes); });
}

void MLflowCallback::log(const Context& e, const Metrics& metrics) {
  if (auto* session = detail::MLflowSession::of(open_run, e))
    session->log(e, metrics, [this](const Context& context, bool resumes) { return open(context, resumes); });
}

void MLflowCallback::on(const Save& e) {
  if (open_run && sends_checkpoints()) open_run->save(e);
}

void MLflowCallback::on(const LogSamples& e) {
  if (auto* session = detail::MLflowSession::of(open_run, e))
    session->log(e, [this](const Context& context, bool resumes) { return open(context, resumes); });
}

void MLflowCallback::on(const Stop& e) {
  if (open_run) open_run->stop(e);
}

void MLflowCallback::on(const TrainError&) {
  if (open_run) open_run->fail();
}

void MLflowCallback::on(const TrainEnd&) {
  if (open_run) open_run->end();
}

}  // namespace etude::inline v0
