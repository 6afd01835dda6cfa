#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "etude/integrations/comet/experiment_settings.hpp"
#include "etude/integrations/comet/journal.hpp"
#include "etude/integrations/shared/append_file.hpp"
#include "etude/io/folder_lock.hpp"

namespace etude::inline v0::detail::comet {

/// An archive for `comet upload`: KEY.zip, or KEY-XXXXXX.zip if the experiment may have other archives. Its
/// contents are first written to the folder `.KEY.partial` next to it, one group of messages at a time. The
/// zip is made from that folder at the end, or by the next process if this one was killed. Only its owner may
/// read any of it.
class Archive final : public Journal {
 public:
  /// Throws ArgumentError if the folder can't be written.
  Archive(const Settings& settings, std::int64_t start_time);

  void put(std::vector<Message> messages) override;
  void put_file(Message message, const std::filesystem::path& file) override;
  void fail(const std::string& what) override;
  void settle() override;
  void finish() override;

  /// Makes the archives of killed processes, and reports which. A training that hadn't ended is marked as
  /// failed.
  static std::vector<Notice> rescue(const std::filesystem::path& directory);

 private:
  void write_experiment();

  std::filesystem::path directory_, folder_;
  std::string stem_;
  nlohmann::ordered_json experiment_;
  std::unique_ptr<FolderLock> lock_;
  AppendFile messages_;
  std::int64_t count_ = 0, lost_ = 0, files_ = 0;
  bool has_warned_ = false;
};

}  // namespace etude::inline v0::detail::comet
