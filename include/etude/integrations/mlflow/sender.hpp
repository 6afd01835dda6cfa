#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "etude/integrations/mlflow/client.hpp"
#include "etude/integrations/shared/outbox.hpp"

namespace etude::inline v0::detail {
namespace mlflow {

/// The server's limits for one request.
inline constexpr std::size_t metrics_at_once = 1000, bytes_at_once = 900'000;

inline nlohmann::ordered_json tag(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", value}};
}

}  // namespace mlflow

/// Passes messages from the sending thread to the training's.
class MLflowReport {
 public:
  void note(std::string what);
  std::vector<std::string> take_notes();

  void set_run(std::string experiment_id, std::string run_id);
  /// The path of the run's page, below the server's address; empty while unknown.
  std::string page() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> notes_;
  std::string page_;
};

/// Sends the entries that MLflowRun writes: first the "run", which is found or created, and then its logs.
class MLflowSender final : public Sender {
 public:
  MLflowSender(MLflowClient client, const Spool& spool, std::shared_ptr<MLflowReport> report);

  std::size_t send(std::span<const nlohmann::ordered_json> entries) override;
  nlohmann::ordered_json memory() const override;
  void idle() override;

 private:
  using Json = nlohmann::ordered_json;

  std::size_t send_next(std::span<const Json> entries);
  void open(const Json& entry);
  std::string experiment_id(const Json& entry);
  MLflowRunInfo find_or_create(const Json& entry);
  MLflowRunInfo create(const std::string& experiment, const Json& entry, const Json& name, Json tags);
  std::string run_of_search(const std::string& experiment, const Json& entry);
  std::size_t log_metrics(std::span<const Json> entries);
  bool log_params(const Json& entry);
  bool log_values(const std::string& kind, const Json& values);
  bool log_one_by_one(const std::string& kind, const Json& values);
  void put_file(const Json& entry);
  void end(const Json& entry);
  MLflowRunInfo living_run();

  MLflowClient client_;
  const Spool& spool_;
  std::shared_ptr<MLflowReport> report_;
  std::string run_id_, experiment_id_, artifact_uri_;
  std::set<std::string> left_out_;  // already reported
  bool is_new_ = false;             // no other process has logged to it
};

}  // namespace etude::inline v0::detail
