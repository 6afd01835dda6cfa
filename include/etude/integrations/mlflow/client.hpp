#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "etude/integrations/shared/http.hpp"

namespace etude::detail {

/// Gets new tokens where a server's end before a training does.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  /// The token to go on with, if it isn't the one that `http` has; a new one is asked for with that, and at
  /// once if the server has just refused it (401). Any thread may call it.
  virtual std::optional<std::string> renewed(HttpClient& http, bool is_refused) = 0;
};

/// What an MLflow server says of a run.
struct MLflowRunFacts {
  std::string id, experiment_id, artifact_uri;
  bool is_deleted = false;
  std::map<std::string, std::string> params = {}, tags = {};
};

/// What an MLflow server says of an experiment.
struct MLflowExperiment {
  std::string id, name;
  bool is_deleted = false;
};

/// The part of MLflow's REST API 2.0 that a run needs. Each call throws Unreachable or Refused; an answer
/// that is none of MLflow's, such as a proxy's, is Unreachable, but for 413, which smaller requests mend.
class MLflowClient {
 public:
  MLflowClient(std::string address, HttpOptions options, std::shared_ptr<TokenSource> tokens = nullptr,
               const std::atomic<bool>* cancelled = nullptr);

  std::optional<MLflowExperiment> experiment(const std::string& id);
  /// The one of this name, made if there is none.
  MLflowExperiment experiment_named(const std::string& name);

  std::optional<MLflowRunFacts> run(const std::string& id);
  std::optional<MLflowRunFacts> run_with_tag(const std::string& experiment_id, const std::string& tag,
                                             const std::string& value);
  MLflowRunFacts create_run(const nlohmann::ordered_json& body);

  /// RUNNING, FINISHED, FAILED or KILLED; the time, in milliseconds, of what ends a run.
  void set_status(const std::string& run_id, const std::string& status, std::optional<std::int64_t> ended);
  /// `values` are the "metrics", "params" or "tags" of runs/log-batch.
  void log_batch(const std::string& run_id, const std::string& kind, nlohmann::ordered_json values);

  /// Uploads a file to where the run has its artifacts, or writes it there, where that is a folder. What is
  /// secret in that address is in no message.
  void put_artifact(const std::string& artifact_uri, const std::string& path,
                    const std::filesystem::path& file);

  /// Sees to a token that ends soon.
  void keep_fresh();

  /// For how long it waits for an answer, or for a byte of a file to get on.
  std::chrono::seconds timeout() const { return http_.options().timeout; }

 private:
  nlohmann::json get(const std::string& method, const std::string& query);
  nlohmann::json post(const std::string& method, const nlohmann::ordered_json& body, bool once = false);
  nlohmann::json call(const HttpRequest& request);
  HttpResponse ask(const HttpRequest& request);
  HttpResponse expect(const HttpRequest& request);
  void put_to_store(const std::string& folder, const std::string& path, const std::filesystem::path& file);

  std::string address_;
  HttpClient http_;
  std::shared_ptr<TokenSource> tokens_;
  const std::atomic<bool>* cancelled_;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/mlflow/impl/client.ipp"
#endif
