#pragma once

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

  void put(std::vector<Message> messages) override;
  void put_file(Message message, const std::filesystem::path& file) override {
    outbox_.put_file(message, file);
  }
  void fail(const std::string& what) override;
  void settle() override;
  void finish() override;
  std::vector<Notice> take_notices() override;

 private:
  void put_one(const std::string& type, nlohmann::ordered_json payload);
  void report_counts();

  std::string key_, server_;
  std::int64_t start_time_;
  bool failed_ = false;
  std::optional<Outbox::Counts> reported_;
  Outbox outbox_;
};

}  // namespace etude::inline v0::detail::comet
