#include "etude/study/journal.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/message.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/io/disk_full.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/json_parser.hpp"

namespace etude::inline v0::detail {

namespace {

[[noreturn]] void throw_journal_fault(const std::filesystem::path& path, std::string_view what, int reason) {
  throw_file_error(fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(reason)),
                   reason);
}

/// The process on this machine that has locked the file with flock().
std::optional<std::int64_t> flock_holder(const struct stat& file) {
  std::ifstream locks("/proc/locks");
  const auto inode = fmt::format(":{}", file.st_ino);
  for (std::string line; std::getline(locks, line);) {
    // 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
    std::istringstream words(line);
    std::string number, kind, strength, access, place;
    std::int64_t process = 0;
    if (words >> number >> kind >> strength >> access >> process >> place && kind == "FLOCK" &&
        place.ends_with(inode))
      return process;
  }
  return {};
}

/// Optuna's JournalFileSymlinkLock: the process that makes the link holds the lock. While a process holds the
/// lock, a first SIGTERM or SIGINT takes effect only after the release.
class JournalLock {
 public:
  explicit JournalLock(const std::filesystem::path& file) : link_(file.string() + ".lock") {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::seconds grace(30), longest_nap(1), patience(10);
    std::chrono::milliseconds nap(1);
    auto changed = Clock::now(), said = changed;
    std::optional<Identity> holder;
    struct timespec seen {};
    while (!try_lock(file)) {
      interruption_point();
      struct stat status {};
      const bool exists = ::stat(link_.c_str(), &status) == 0;
      const auto now_holder = identity();
      const auto now = Clock::now();
      // The link points to the journal, and a living writer changes the journal.
      const bool is_written =
          exists && (status.st_mtim.tv_sec != seen.tv_sec || status.st_mtim.tv_nsec != seen.tv_nsec);
      if (is_written || now_holder != holder) {
        seen = status.st_mtim;
        holder = now_holder;
        changed = now;
      } else if (now - changed > grace) {
        if (!holder || remove(*holder)) continue;
        throw_journal_fault(file, "the lock of a process that has ended can't be removed", errno);
      }
      if (now - said > patience) {
        said = now;
        say_who_has_it(file);
      }
      std::this_thread::sleep_for(nap);
      nap = std::min<std::chrono::milliseconds>(nap * 2, longest_nap);
    }
  }
  JournalLock(const JournalLock&) = delete;
  JournalLock& operator=(const JournalLock&) = delete;
  ~JournalLock() {
    if (is_held()) remove(*own_);
  }

  /// False if this process was suspended for so long that another has removed the lock.
  bool is_held() const { return own_ && identity() == own_; }

 private:
  /// The link's device, inode and creation time, which renaming preserves.
  using Identity = std::tuple<::dev_t, ::ino_t, std::int64_t, std::int64_t>;

  static std::optional<Identity> identity_of(const std::string& link) {
    struct stat status {};
    if (::lstat(link.c_str(), &status) != 0) return {};
    return Identity{status.st_dev, status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  }
  std::optional<Identity> identity() const { return identity_of(link_); }

  bool try_lock(const std::filesystem::path& file) {
    signals_.emplace(true);
    if (::symlink(std::filesystem::absolute(file).c_str(), link_.c_str()) == 0) {
      own_ = identity();
      return true;
    }
    const int reason = errno;
    signals_.reset();
    if (reason != EEXIST) throw_journal_fault(file, "can't be locked", reason);
    return false;
  }

  /// Removes the given holder's link; false on an error such as a missing permission. Of several processes
  /// that try, only one can rename the link; a process that has renamed the next holder's link instead
  /// restores it.
  bool remove(const Identity& holder) const {
    const auto taken = fmt::format("{}{}.rename", link_, random_name());
    if (::rename(link_.c_str(), taken.c_str()) != 0) return errno == ENOENT;
    // If a third process has made a link meanwhile, the holder of this one notices before it writes.
    if (identity_of(taken) != holder) [[maybe_unused]]
      const int restored = ::link(taken.c_str(), link_.c_str());
    ::unlink(taken.c_str());
    return true;
  }

  void say_who_has_it(const std::filesystem::path& file) const {
    struct stat link {
    }, journal{};
    if (::lstat(link_.c_str(), &link) != 0) return;
    const auto process = ::stat(file.c_str(), &journal) == 0 ? flock_holder(journal) : std::nullopt;
    const auto text = fmt::format(
        "{}: waiting for {}, which {} has held since {:%Y-%m-%d %H:%M:%S} UTC; it is taken away once the "
        "journal hasn't changed for 30 seconds",
        file.string(), link_,
        process ? fmt::format("process {}", *process) : fmt::format("a process of user {}", link.st_uid),
        fmt::gmtime(link.st_mtim.tv_sec));
    message("warning", -1, text);
  }

  std::string link_;
  std::optional<Identity> own_;
  std::optional<SignalGuard> signals_;
};

/// Overwrites the bytes from `begin` to `end` with spaces, which JSON allows before the next record. Unlike
/// truncation, this keeps records that other processes have appended meanwhile.
void blank(const std::filesystem::path& path, ::off_t begin, ::off_t end) {
  const Descriptor file(uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); }));
  const std::string spaces(static_cast<std::size_t>(end - begin), ' ');
  if (!file) throw_journal_fault(path, "can't be repaired", errno);
  const auto size = uninterrupted([&] { return ::pwrite(file.get(), spaces.data(), spaces.size(), begin); });
  if (size != end - begin) throw_journal_fault(path, "can't be repaired", size < 0 ? errno : EIO);
}

/// Blanks an incomplete record whose writer died.
void blank_torn_record(const std::filesystem::path& path, const Descriptor& file) {
  const auto end = ::lseek(file.get(), 0, SEEK_END);
  auto begin = end;
  for (char last; begin > 0; --begin) {
    if (::pread(file.get(), &last, 1, begin - 1) != 1) throw_journal_fault(path, "can't be read", errno);
    if (last == '\n') break;
  }
  if (begin != end) blank(path, begin, end);
}

}  // namespace

JournalFile::JournalFile(std::filesystem::path path) : path_(std::move(path)) {
  Descriptor file(uninterrupted([&] { return ::open(path_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666); }));
  // A read-only journal can still be read.
  if (const int reason = errno; !file) {
    file = Descriptor(uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); }));
    if (!file) throw_journal_fault(path_, "can't be opened", reason);
  }
}

void JournalFile::append_exclusively(const std::function<std::vector<std::string>()>& make) {
  for (;;) {
    const JournalLock lock(path_);
    const Descriptor file(
        uninterrupted([&] { return ::open(path_.c_str(), O_RDWR | O_APPEND | O_CLOEXEC); }));
    if (!file) throw_journal_fault(path_, "can't be opened", errno);
    ::flock(file.get(), LOCK_EX | LOCK_NB);  // lets waiting processes report this one
    std::string text;
    for (const auto& record : make()) text += record + "\n";
    if (text.empty()) return;
    // Another process may have written since `make` was called.
    if (!lock.is_held()) continue;
    blank_torn_record(path_, file);
    if (!lock.is_held()) continue;
    return append_text(file, text);
  }
}

/// Appends lines; an incomplete line is blanked and written again.
void JournalFile::append_text(const Descriptor& file, std::string_view text) {
  while (!text.empty()) {
    const auto size = uninterrupted([&] { return ::write(file.get(), text.data(), text.size()); });
    if (size <= 0) throw_journal_fault(path_, "can't be written", size < 0 ? errno : EIO);
    const auto written = text.substr(0, static_cast<std::size_t>(size));
    const auto whole = written.rfind('\n') + 1;  // 0 if no line is complete
    if (whole < written.size()) {
      const auto end = ::lseek(file.get(), 0, SEEK_CUR);
      blank(path_, end - static_cast<::off_t>(written.size() - whole), end);
    }
    text.remove_prefix(whole);
  }
  if (flush_to_disk(file.get()) != 0) throw_journal_fault(path_, "can't be written", errno);
}

std::vector<nlohmann::ordered_json> JournalFile::read() {
  const Descriptor file(uninterrupted([&] { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file) throw_journal_fault(path_, "can't be opened", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) == 0 && static_cast<std::uintmax_t>(status.st_size) < read_bytes_)
    throw CheckpointError(
        fmt::format("{}: has {} bytes, though it had {} before: must not be shortened while it is used",
                    path_.string(), status.st_size, read_bytes_));
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const auto place = static_cast<::off_t>(read_bytes_ + text.size());
    const auto size = uninterrupted([&] { return ::pread(file.get(), buffer.data(), buffer.size(), place); });
    if (size < 0) throw_journal_fault(path_, "can't be read", errno);
    if (size == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  std::vector<nlohmann::ordered_json> records;
  std::string_view left = text;
  // A last line without a newline is still being written.
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
