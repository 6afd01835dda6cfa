#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/httplib.hpp"
#include "common/variables.hpp"

namespace toy {

/// The part of an MLflow server that a run needs: one experiment, and runs that are created, found by a tag
/// and logged to. It listens below `prefix`, and records its requests.
class MLflowServer {
 public:
  using Json = nlohmann::json;
  struct Call {
    std::string method;  ///< Such as "runs/create".
    Json body;
    std::string authorization;
  };

  explicit MLflowServer(const std::string& prefix = "") : prefix_(prefix) {
    const auto handler = [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      const auto at = request.path.find("/api/2.0/mlflow/");
      const auto method = at == std::string::npos ? request.path : request.path.substr(at + 16);
      calls_.push_back(
          {method, Json::parse(request.body, nullptr, false), request.get_header_value("Authorization")});
      if (before && before(calls_.back(), response)) return;
      const auto answer = this->answer(method, calls_.back().body, request);
      response.status = answer.contains("error_code") ? 404 : 200;
      response.set_content(answer.dump(), "application/json");
    };
    server_.Get(".*", handler);
    server_.Post(".*", handler);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~MLflowServer() {
    server_.stop();
    thread_.join();
  }

  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_) + prefix_; }

  /// The calls of a method, or all calls.
  std::vector<Call> calls(const std::string& method = "") const {
    const std::lock_guard lock(mutex_);
    auto found = calls_;
    std::erase_if(found, [&](const Call& call) { return !method.empty() && call.method != method; });
    return found;
  }

  /// The "metrics", "params" or "tags" received in log-batch requests for a run, or for all runs.
  std::vector<Json> logged(const std::string& kind, const std::string& run_id = "") const {
    std::vector<Json> values;
    for (const auto& call : calls("runs/log-batch"))
      if (call.body.contains(kind) && (run_id.empty() || call.body["run_id"] == run_id))
        for (const auto& value : call.body[kind]) values.push_back(value);
    return values;
  }
  std::vector<std::string> keys(const std::string& kind) const {
    std::vector<std::string> names;
    for (const auto& value : logged(kind)) names.push_back(value["key"]);
    return names;
  }

  /// Called first; true if it has answered the request.
  std::function<bool(const Call&, httplib::Response&)> before;

 private:
  Json answer(const std::string& method, const Json& body, const httplib::Request& request) {
    const auto run_of = [](const Json& run) { return Json{{"run", run}}; };
    if (method == "experiments/get")
      return {
          {"experiment", {{"experiment_id", request.get_param_value("experiment_id")}, {"name", "Default"}}}};
    if (method == "experiments/get-by-name")
      return {{"experiment", {{"experiment_id", "7"}, {"name", request.get_param_value("experiment_name")}}}};
    if (method == "runs/create") {
      const auto id = "run" + std::to_string(runs_.size());
      runs_[id] = {
          {"info", {{"run_id", id}, {"experiment_id", body["experiment_id"]}, {"artifact_uri", "s3://x"}}},
          {"data", {{"tags", body["tags"]}, {"params", Json::array()}}}};
      return run_of(runs_[id]);
    }
    if (method == "runs/search") {
      for (const auto& [id, run] : runs_)
        for (const auto& tag : run["data"]["tags"])
          if (body["filter"] ==
              "tags.`" + tag["key"].get<std::string>() + "` = '" + tag["value"].get<std::string>() + "'")
            return {{"runs", {run}}};
      return Json::object();
    }
    if (method == "runs/get") {
      const auto run = runs_.find(request.get_param_value("run_id"));
      return run == runs_.end() ? Json{{"error_code", "RESOURCE_DOES_NOT_EXIST"}} : run_of(run->second);
    }
    if (method == "runs/log-batch" && body.contains("params"))
      for (const auto& param : body["params"]) runs_[body["run_id"]]["data"]["params"].push_back(param);
    return Json::object();
  }

  std::string prefix_;
  mutable std::mutex mutex_;
  std::vector<Call> calls_;
  std::map<std::string, Json> runs_;
  httplib::Server server_;
  std::thread thread_;
  int port_ = 0;
};

}  // namespace toy
