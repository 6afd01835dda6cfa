#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "etude/integrations/comet/experiment_settings.hpp"
#include "etude/integrations/shared/http.hpp"
#include "etude/integrations/shared/outbox.hpp"

namespace etude::inline v0::detail::comet {

/// Talks to Comet's server as its Python client 3.58 does. Experiments, parameters, metrics and heartbeats
/// use that client's addresses, which let the client choose the experiment's key and accept batches;
/// everything else uses the public REST interface, version 2.
class ServerClient final : public Sender {
 public:
  ServerClient(const Settings& settings, const Spool& spool, const std::atomic<bool>& cancelled);

  std::size_t send(std::span<const nlohmann::ordered_json> entries) override;
  nlohmann::ordered_json memory() const override;
  void idle() override;

 private:
  using Json = nlohmann::ordered_json;
  static constexpr std::size_t most_at_once = 1000;

  nlohmann::json post(const std::string& url, const Json& body);
  nlohmann::json post(const HttpRequest& request);
  std::string client(std::string_view path) const;
  std::string rest(std::string_view path) const;

  void open(const Json& payload);
  void send_one(const Json& entry);
  void send_asset(const Json& entry);
  void close(const Json& payload);
  /// Sends the leading entries that share a type: all of them, or progressively fewer if the server refuses,
  /// so only entries that are refused by themselves are given up.
  std::size_t send_batch(std::span<const Json> entries, const std::string& type);
  void say_alive(bool is_alive);
  void beat();

  std::string api_key_, client_url_, rest_url_;
  const Spool& spool_;
  HttpClient http_;
  std::string key_, run_id_, project_id_;
  std::size_t batch_ = most_at_once;
  bool answer_was_lost_ = false, closed_ = false;
  std::chrono::steady_clock::time_point next_beat_ = {};
};

}  // namespace etude::inline v0::detail::comet
