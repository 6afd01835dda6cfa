#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "etude/integrations/shared/http.hpp"

namespace etude::inline v0::detail {

/// Renews a server's tokens, which expire during a training. Returns the token to use if it differs from the
/// one in `http`. New tokens are requested with the one in `http`: from time to time, and at once if
/// `is_refused`, that is, if the server has just rejected it (401). Any thread may call it.
using RenewToken = std::function<std::optional<std::string>(HttpClient& http, bool is_refused)>;

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

/// The part of MLflow's REST API 2.0 that a run needs. Each call throws Unreachable or Refused; a response
/// that doesn't come from MLflow, such as a proxy's, throws Unreachable, except for 413, where smaller
/// requests help.
class MLflowClient {
 public:
  MLflowClient(std::string address, HttpOptions options, RenewToken renew_token = nullptr,
               const std::atomic<bool>* cancelled = nullptr);

  std::optional<MLflowExperiment> experiment(const std::string& id);
  /// Returns the experiment of this name, and creates it if necessary.
  MLflowExperiment experiment_named(const std::string& name);

  std::optional<MLflowRunInfo> run(const std::string& id);
  std::optional<MLflowRunInfo> run_with_tag(const std::string& experiment_id, const std::string& tag,
                                            const std::string& value);
  MLflowRunInfo create_run(const nlohmann::ordered_json& body);

  /// `status` is RUNNING, FINISHED, FAILED or KILLED; `ended` is the end time in milliseconds since 1970.
  void set_status(const std::string& run_id, const std::string& status, std::optional<std::int64_t> ended);
  /// `values` are the "metrics", "params" or "tags" of runs/log-batch.
  void log_batch(const std::string& run_id, const std::string& kind, nlohmann::ordered_json values);

  /// Uploads a file to the run's artifacts, or copies it there if they are in a folder. Messages never
  /// contain secrets from that address.
  void put_artifact(const std::string& artifact_uri, const std::string& path,
                    const std::filesystem::path& file);

  /// Renews a token that expires soon.
  void keep_fresh();

 private:
  nlohmann::json get(const std::string& method, const std::string& query);
  nlohmann::json post(const std::string& method, const nlohmann::ordered_json& body, bool once = false);
  nlohmann::json call(const HttpRequest& request);
  HttpResponse ask(const HttpRequest& request);
  HttpResponse expect(const HttpRequest& request);
  void put_to_store(const std::string& folder, const std::string& path, const std::filesystem::path& file);

  std::string address_;
  HttpClient http_;
  RenewToken renew_token_;
  const std::atomic<bool>* cancelled_;
};

}  // namespace etude::inline v0::detail
