#include "etude/integrations/comet/online.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "etude/integrations/comet/server_client.hpp"
#include "etude/integrations/shared/environment.hpp"

namespace etude::inline v0::detail::comet {

Online::Online(const Settings& settings, std::int64_t start_time)
    : key_(settings.key),
      server_(settings.client_url),
      start_time_(start_time),
      outbox_({.directory = settings.spool_directory, .tracker = "comet", .target = settings.client_url},
              [settings](const Spool& spool, const std::atomic<bool>& cancelled) {
                return std::make_unique<ServerClient>(settings, spool, cancelled);
              }) {
  put_one("open", {{"key", settings.key},
                   {"is_new", settings.key_is_new},
                   {"mode", settings.mode},
                   {"project", settings.project},
                   {"workspace", settings.workspace}});
  if (!settings.tags.empty()) put_one("tags", {{"tags", settings.tags}});
}

void Online::put_one(const std::string& type, nlohmann::ordered_json payload) {
  outbox_.put({{"type", type}, {"payload", std::move(payload)}});
}

void Online::put(std::vector<Message> messages) {
  for (const auto& message : messages) outbox_.put(message);
}

void Online::fail(const std::string& what) {
  failed_ = true;
  put_one("fail", {{"error", what}});
}

void Online::report_counts() {
  const auto counts = outbox_.counts();
  const bool is_well = counts.waiting == 0 && counts.dropped == 0;
  report(is_well ? LogLevel::info : LogLevel::warning,
         fmt::format("Comet: {} messages of experiment {} were sent to {}, {} wait in {}, {} were dropped",
                     counts.sent, key_, server_, counts.waiting, outbox_.spool().folder().string(),
                     counts.dropped));
  reported_ = counts;
}

void Online::settle() {
  outbox_.send_rest(std::chrono::seconds(10));
  report_counts();
}

void Online::finish() {
  put_one("end", {{"start", start_time_}, {"stop", unix_milliseconds()}, {"failed", failed_}});
  outbox_.send_rest(std::chrono::seconds(10));
  if (reported_) ++reported_->sent;  // the final message alone needs no further report
  if (outbox_.counts() != reported_) report_counts();
}

std::vector<Notice> Online::take_notices() {
  auto notices = Journal::take_notices();
  for (const auto& fault : outbox_.take_faults())
    notices.push_back({LogLevel::warning, fmt::format("Comet: {}", fault)});
  return notices;
}

}  // namespace etude::inline v0::detail::comet
