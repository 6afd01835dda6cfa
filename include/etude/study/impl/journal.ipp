#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json_parser.hpp"
#include "etude/study/journal.hpp"

namespace etude::inline v0::detail {

inline CheckpointError journal_fault(const std::filesystem::path& path, std::string_view what, int error) {
  return CheckpointError(
      fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(error)));
}

/// Optuna's JournalFileSymlinkLock: the process that makes the link holds the lock.
class JournalLock {
 public:
  explicit JournalLock(const std::filesystem::path& file) : link_(file.string() + ".lock") {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::seconds grace(30), longest_nap(1);
    std::chrono::milliseconds nap(1);
    auto changed = Clock::now();
    struct timespec seen {};
    while (::symlink(std::filesystem::absolute(file).c_str(), link_.c_str()) != 0) {
      if (errno != EEXIST) throw journal_fault(file, "can't be locked", errno);
      struct stat status {};
      // The link leads to the journal, which a living writer changes.
      const bool exists = ::stat(link_.c_str(), &status) == 0;
      if (exists && (status.st_mtim.tv_sec != seen.tv_sec || status.st_mtim.tv_nsec != seen.tv_nsec)) {
        seen = status.st_mtim;
        changed = Clock::now();
      } else if (Clock::now() - changed > grace) {
        release();
        continue;
      }
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::milliseconds>(nap * 2, longest_nap);
    }
  }
  JournalLock(const JournalLock&) = delete;
  JournalLock& operator=(const JournalLock&) = delete;
  ~JournalLock() { release(); }

 private:
  /// If several take the lock of a dead writer away, one of them renames the link.
  void release() const {
    const auto taken = fmt::format("{}{}.rename", link_, random_name());
    if (::rename(link_.c_str(), taken.c_str()) == 0) ::unlink(taken.c_str());
  }

  std::string link_;
};

ETUDE_INLINE JournalFile::JournalFile(std::filesystem::path path) : path_(std::move(path)) {
  const Descriptor file(
      uninterrupted([&] { return ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666); }));
  if (!file) throw journal_fault(path_, "can't be opened", errno);
}

ETUDE_INLINE void JournalFile::append_exclusively(const std::function<std::vector<std::string>()>& make) {
  const JournalLock lock(path_);
  std::string text;
  for (const auto& record : make()) text += record + "\n";
  if (text.empty()) return;
  const Descriptor file(uninterrupted([&] { return ::open(path_.c_str(), O_RDWR | O_CLOEXEC); }));
  if (!file) throw journal_fault(path_, "can't be opened", errno);
  auto end = ::lseek(file.get(), 0, SEEK_END);
  const auto whole = [&] {
    for (char last; end > 0; --end)
      if (::pread(file.get(), &last, 1, end - 1) != 1 || last == '\n') return;
  };
  const auto before = end;
  whole();
  if (end != before && ::ftruncate(file.get(), end) != 0)
    throw journal_fault(path_, "can't be mended", errno);
  for (std::size_t done = 0; done < text.size();) {
    const auto written = uninterrupted([&] {
      return ::pwrite(file.get(), text.data() + done, text.size() - done, end + static_cast<::off_t>(done));
    });
    if (written < 0) {
      const int error = errno;
      // If this fails, the next writer removes the rest, which has no line end.
      [[maybe_unused]] const int removed = ::ftruncate(file.get(), end);
      throw journal_fault(path_, "can't be written", error);
    }
    done += static_cast<std::size_t>(written);
  }
  if (flush_to_disk(file.get()) != 0) throw journal_fault(path_, "can't be written", errno);
}

ETUDE_INLINE std::vector<nlohmann::ordered_json> JournalFile::read() {
  const Descriptor file(uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file) throw journal_fault(path_, "can't be opened", errno);
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const auto place = static_cast<::off_t>(read_bytes_ + text.size());
    const auto size = uninterrupted([&] { return ::pread(file.get(), buffer.data(), buffer.size(), place); });
    if (size < 0) throw journal_fault(path_, "can't be read", errno);
    if (size == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  std::vector<nlohmann::ordered_json> records;
  std::string_view left = text;
  // A last line without an end is being written.
  for (std::size_t end; (end = left.find('\n')) != left.npos; left.remove_prefix(end + 1)) {
    const auto line = read_lines_ + static_cast<std::int64_t>(records.size()) + 1;
    try {
      records.push_back(parse_json(left.substr(0, end)));
    } catch (const ArgumentError& error) {
      throw CheckpointError(fmt::format("{}: line {}: {}", path_.string(), line, error.what()));
    }
    if (!records.back().is_object())
      throw CheckpointError(fmt::format("{}: line {} isn't a JSON object", path_.string(), line));
  }
  read_bytes_ += text.size() - left.size();
  read_lines_ += static_cast<std::int64_t>(records.size());
  return records;
}

}  // namespace etude::inline v0::detail
