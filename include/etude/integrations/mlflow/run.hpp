#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/events.hpp"
#include "etude/integrations/mlflow/names.hpp"
#include "etude/integrations/mlflow/sender.hpp"
#include "etude/integrations/shared/http.hpp"
#include "etude/integrations/shared/outbox.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/sample.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0::detail {

/// A run's address and identity.
struct MLflowRunOptions {
  std::string callback = {};  ///< The callback's name, for messages.
  std::string tracker = {};   ///< The tracker's name in spools.
  std::string address = {};   ///< The server's address, without credentials.
  HttpOptions http = {};
  RenewToken renew_token = nullptr;
  std::filesystem::path spool_directory = {};
  double drain_seconds = 10;

  std::string key = {};        ///< Identifies the run.
  std::string attach_to = {};  ///< An existing run to log to instead of a new one.
  std::string experiment_id = {}, experiment_name = {};
  std::string name = {};
  std::string parent_run_id = {};
  nlohmann::ordered_json search = {};  ///< The search that a trial without `parent_run_id` belongs to.
  std::map<std::string, std::string> tags = {};
  bool ends = true;  ///< Whether we set its status.
};

/// A run on an MLflow server, used by the training's thread: it writes everything to an outbox, which sends
/// it in the background.
class MLflowRun {
 public:
  /// Throws ArgumentError if the spool can't be created.
  MLflowRun(MLflowRunOptions options, const TrainingArguments& args);
  MLflowRun(const MLflowRun&) = delete;
  MLflowRun& operator=(const MLflowRun&) = delete;
  /// Ends the run as FINISHED, if it hasn't ended, and sends the remaining logs.
  ~MLflowRun();

  void log_metrics(const Metrics& metrics, std::int64_t step);
  /// Logs the first `at_most` parameters; all if negative.
  void log_params(const std::vector<std::pair<std::string, nlohmann::ordered_json>>& params,
                  std::int64_t at_most);
  /// Sends every file of the checkpoint, under its name.
  void log_checkpoint(const std::filesystem::path& checkpoint);
  /// Sends samples as files: images under the names that `mlflow.log_image` uses, texts and sounds under
  /// similar ones.
  void log_samples(const std::vector<Sample>& samples, std::int64_t step);
  /// `status` is FINISHED, FAILED or KILLED; reports how much was sent.
  void end(std::string_view status);

  /// Reports errors since the previous call.
  void report_faults();

 private:
  void put(const nlohmann::ordered_json& entry);
  void put_sample(const Sample& sample, std::int64_t step);
  void put_chunks(const char* what, const nlohmann::ordered_json& values);
  void send_rest();
  void report_counts();

  MLflowRunOptions options_;
  TrainingArguments args_;
  std::int64_t begun_, last_time_ = 0;
  bool has_ended_ = false, has_news_ = false, has_images_ = false;
  MLflowNames metric_names_, param_names_, sample_names_;
  std::shared_ptr<MLflowReport> report_ = std::make_shared<MLflowReport>();
  Outbox::Counts reported_;
  Outbox outbox_;
};

/// The members of an object, as log_params takes them.
std::vector<std::pair<std::string, nlohmann::ordered_json>> members(const nlohmann::ordered_json& values);

/// Nests a trial's run: in `parent_run_id` if given; or else in the run to attach to, unless that is the
/// trial's `run_id`; or else in a run for the search, which the sender finds or creates.
void nest_trial(MLflowRunOptions& options, const Context& e, const std::string& run_id);

/// Sets `key` and `attach_to` in `options`: to `run_key` and `attached_to` if a training `resumes` from its
/// checkpoint, otherwise to the values for a new run. Throws ArgumentError if the server reports within 2 s
/// that the run or experiment that the user gave by id doesn't exist, or that the run isn't in the
/// experiment.
void identify_mlflow_run(MLflowRunOptions& options, const std::string& run_key,
                         const std::string& attached_to, bool resumes);

}  // namespace etude::inline v0::detail
