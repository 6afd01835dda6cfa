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

namespace etude::inline v0::detail {

/// Provides new tokens when a server's tokens expire during a training.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  /// The token to use, if it isn't the one in `http`, which authorises requests for new ones; renews at once
  /// if the server has just refused it (401). Any thread may call it.
  virtual std::optional<std::string> renewed(HttpClient& http, bool is_refused) = 0;
};

/// A run as the server describes it.
struct MLflowRunInfo {
  std::string id, experiment_id, artifact_uri;
  bool is_deleted = false;
  std::map<std::string, std::string> params = {}, tags = {};
};

/// An experiment as the server describes it.
struct MLflowExperiment {
  std::string id, name;
  bool is_deleted = false;
};

/// The part of MLflow's REST API 2.0 that a run needs. Each call throws Unreachable or Refused; an answer
/// that doesn't come from MLflow, such as a proxy's, is Unreachable, except for 413, where smaller requests
/// help.
class MLflowClient {
 public:
  MLflowClient(std::string address, HttpOptions options, std::shared_ptr<TokenSource> tokens = nullptr,
               const std::atomic<bool>* cancelled = nullptr);

  std::optional<MLflowExperiment> experiment(const std::string& id);
  /// The experiment of this name, created if necessary.
  MLflowExperiment experiment_named(const std::string& name);

  std::optional<MLflowRunInfo> run(const std::string& id);
  std::optional<MLflowRunInfo> run_with_tag(const std::string& experiment_id, const std::string& tag,
                                            const std::string& value);
  MLflowRunInfo create_run(const nlohmann::ordered_json& body);

  /// RUNNING, FINISHED, FAILED or KILLED; `ended` is the end time in milliseconds.
  void set_status(const std::string& run_id, const std::string& status, std::optional<std::int64_t> ended);
  /// `values` are the "metrics", "params" or "tags" of runs/log-batch.
  void log_batch(const std::string& run_id, const std::string& kind, nlohmann::ordered_json values);

  /// Uploads a file to the run's artifacts, or writes it there if they are in a folder. Secrets in that
  /// address appear in no message.
  void put_artifact(const std::string& artifact_uri, const std::string& path,
                    const std::filesystem::path& file);

  /// Renews a token that expires soon.
  void keep_fresh();

  /// The timeout for an answer, or for progress in a file's transfer.
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

}  // namespace etude::inline v0::detail
