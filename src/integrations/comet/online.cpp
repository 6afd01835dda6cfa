#include "etude/integrations/comet/online.hpp"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "etude/integrations/comet/server_client.hpp"

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

void Online::put(std::vector<Message> messages) noexcept {
  try {
    for (const auto& message : messages) outbox_.put(message);
  } catch (const std::exception& error) {
    notices_.push_back({LogLevel::warning, fmt::format("Comet: {}", error.what())});
  }
}

void Online::put_file(Message message, const std::filesystem::path& file) noexcept {
  try {
    outbox_.put_file(message, file);
  } catch (const std::exception& error) {
    notices_.push_back({LogLevel::warning, fmt::format("Comet: {}", error.what())});
  }
}

void Online::fail(const std::string& what) noexcept {
  try {
    failed_ = true;
    put_one("fail", {{"error", what}});
  } catch (const std::exception&) {
    // It is also reported at the end.
  }
}

void Online::drain(std::chrono::milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  // A server that has never answered may not exist, so wait for it only briefly.
  const auto a_while = [](std::int64_t sent) { return std::chrono::milliseconds(sent > 0 ? 2000 : 250); };
  for (auto before = outbox_.counts().sent; !outbox_.drain(a_while(before));) {
    const auto sent = outbox_.counts().sent;
    if (sent == before || std::chrono::steady_clock::now() > end) return;
    before = sent;
  }
}

void Online::report_counts() {
  const auto counts = outbox_.counts();
  const bool is_well = counts.waiting == 0 && counts.dropped == 0;
  notices_.push_back(
      {is_well ? LogLevel::info : LogLevel::warning,
       fmt::format("Comet: {} messages of experiment {} were sent to {}, {} wait in {}, {} were dropped",
                   counts.sent, key_, server_, counts.waiting, outbox_.spool().folder().string(),
                   counts.dropped)});
  reported_ = counts;
}

void Online::settle() noexcept {
  try {
    drain(std::chrono::seconds(10));
    report_counts();
  } catch (const std::exception&) {
    // out of memory
  }
}

void Online::finish() noexcept {
  if (std::exchange(finished_, true)) return;
  try {
    put_one("end", {{"start", start_time_}, {"stop", now()}, {"failed", failed_}});
    drain(std::chrono::seconds(10));
    if (reported_) ++reported_->sent;  // the final message alone needs no further report
    if (outbox_.counts() != reported_) report_counts();
  } catch (const std::exception&) {
    // The server notices by itself that no more messages arrive.
  }
}

std::vector<Notice> Online::notices() noexcept {
  auto notices = std::exchange(notices_, {});
  try {
    for (const auto& fault : outbox_.take_faults())
      notices.push_back({LogLevel::warning, fmt::format("Comet: {}", fault)});
  } catch (const std::exception&) {
    // out of memory
  }
  return notices;
}

}  // namespace etude::inline v0::detail::comet
