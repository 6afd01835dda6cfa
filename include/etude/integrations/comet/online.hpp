#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "etude/integrations/comet/experiment_settings.hpp"
#include "etude/integrations/comet/journal.hpp"
#include "etude/integrations/shared/outbox.hpp"

namespace etude::inline v0::detail::comet {

/// Sends the messages to a server in the background.
class Online final : public Journal {
 public:
  /// Throws ArgumentError if the spool can't be created.
  Online(const Settings& settings, std::int64_t start_time);
  ~Online() override { finish(); }

  void put(std::vector<Message> messages) noexcept override;
  void put_file(Message message, const std::filesystem::path& file) noexcept override;
  void fail(const std::string& what) noexcept override;
  void settle() noexcept override;
  void finish() noexcept override;
  std::vector<Notice> notices() noexcept override;

 private:
  void put_one(const std::string& type, nlohmann::ordered_json payload);
  /// Waits as long as progress is made, at most this long.
  void drain(std::chrono::milliseconds at_most);
  void report_counts();

  std::string key_, server_;
  std::int64_t start_time_;
  bool failed_ = false, finished_ = false;
  std::vector<Notice> notices_;
  std::optional<Outbox::Counts> reported_;
  Outbox outbox_;
};

}  // namespace etude::inline v0::detail::comet
