#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/integrations/mlflow/names.hpp"
#include "etude/integrations/mlflow/sender.hpp"
#include "etude/integrations/shared/http.hpp"
#include "etude/integrations/shared/outbox.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/training_arguments.hpp"

namespace etude::detail {

/// Where a run is sent to, and as what.
struct MLflowRunOptions {
  std::string callback = {};  ///< Whose messages these are.
  std::string tracker = {};   ///< As spools have it.
  std::string address = {};   ///< Of the server, without credentials.
  HttpOptions http = {};
  std::shared_ptr<TokenSource> tokens = nullptr;
  std::filesystem::path spool_directory = {};
  double drain_seconds = 10;

  std::string key = {};        ///< By which the run is found again.
  std::string attach_to = {};  ///< A run of the server, instead of one that is made.
  std::string experiment_id = {}, experiment_name = {};
  std::string name = {};
  std::string parent_run_id = {};
  std::map<std::string, std::string> tags = {};
  bool ends = true;  ///< Its status is ours to say.
};

/// A run on an MLflow server, for the training's thread: everything is written to an outbox, and sent behind
/// the training.
class MLflowRun {
 public:
  /// Throws ArgumentError where the spool can't be made.
  MLflowRun(MLflowRunOptions options, const TrainingArguments& args);
  MLflowRun(const MLflowRun&) = delete;
  MLflowRun& operator=(const MLflowRun&) = delete;
  /// Ends the run as FINISHED, if it hasn't ended, and sends what was logged since.
  ~MLflowRun();

  void log_metrics(const Metrics& metrics, std::int64_t step);
  /// The first `at_most` of them; all, if that is negative.
  void log_params(const std::vector<std::pair<std::string, nlohmann::ordered_json>>& params,
                  std::int64_t at_most);
  /// Every file of the checkpoint, below its name.
  void log_checkpoint(const std::filesystem::path& checkpoint);
  /// FINISHED, FAILED or KILLED; and tells how much was sent.
  void end(std::string_view status);

  /// Says what went wrong since it was last asked.
  void tell_faults();

 private:
  void put(const nlohmann::ordered_json& entry);
  void put_chunks(const char* what, const nlohmann::ordered_json& values);
  void send_rest();
  void tell_counts();

  MLflowRunOptions options_;
  TrainingArguments args_;
  std::int64_t begun_, last_time_ = 0;
  bool has_ended_ = false, has_news_ = false;
  MLflowNames metric_names_, param_names_;
  std::shared_ptr<MLflowReport> report_ = std::make_shared<MLflowReport>();
  Outbox::Counts told_;
  Outbox outbox_;
};

/// What log_params takes, of the members of an object.
std::vector<std::pair<std::string, nlohmann::ordered_json>> members(const nlohmann::ordered_json& values);

/// Says in `options` which run it is, by its `key` and `attach_to`: those of `run_key` and `attached_to`,
/// which a training that `resumes` has from its checkpoint, or a new one. Throws ArgumentError for a run or
/// an experiment that a person has named by its id and that isn't there, or don't belong together, if the
/// server says so within 2 s.
void identify_mlflow_run(MLflowRunOptions& options, const std::string& run_key,
                         const std::string& attached_to, bool resumes);

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/mlflow/impl/run.ipp"
#endif
