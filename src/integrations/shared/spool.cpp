#include "etude/integrations/shared/spool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/read_file.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/file_system.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {
namespace spool {

namespace {

constexpr std::string_view entries = "entries.jsonl", sent = "sent.json", run = "run.json", files = "files",
                           lock = "lock";
constexpr std::int64_t part = 1 << 16;  // bytes read at once

Descriptor open_file(const std::filesystem::path& path) {
  return Descriptor(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
}

/// At most `size` bytes; none if the file can't be read.
std::string read(const Descriptor& file, std::int64_t begin, std::int64_t size) {
  std::string text(static_cast<std::size_t>(std::max(size, std::int64_t{0})), '\0');
  const auto count = uninterrupted([&] { return ::pread(file.get(), text.data(), text.size(), begin); });
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return text;
}

nlohmann::ordered_json read_object(const std::filesystem::path& path) {
  auto json = nlohmann::ordered_json::parse(read(open_file(path), 0, 1 << 20), nullptr, false);
  return json.is_object() ? json : nlohmann::ordered_json::object();
}

void write(const std::filesystem::path& path, const nlohmann::ordered_json& json) {
  write_file(default_file_system(), path, json_line(json));
}

/// Identifies a mounted file system of the running machine: containers that see the same one see the same
/// locks. Empty if it has no name.
std::string mount_of(const std::filesystem::path& folder) {
  const auto file = read_file("/proc/sys/kernel/random/boot_id").value_or("");
  const auto boot = without_blanks(file);
  struct stat status {};
  if (boot.empty() || ::stat(folder.c_str(), &status) != 0) return "";
  return fmt::format("{}:{}", boot, status.st_dev);
}

bool says(const nlohmann::ordered_json& json, const char* name, const std::string& value) {
  return json.contains(name) && json[name] == value;
}

bool is_of_this_machine(const nlohmann::ordered_json& json, const std::filesystem::path& folder) {
  const auto mount = mount_of(folder);
  return says(json, "host", host_name()) || (!mount.empty() && says(json, "mount", mount));
}

/// True if the folder belongs to this user: entries of other users would be sent with our credentials.
bool is_ours(const std::filesystem::path& folder) {
  struct stat status {};
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 022) == 0;
}

void make_folder(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw ArgumentError(fmt::format("{} can't be created: {}", path.string(), std::strerror(errno)));
}

/// Spools are created and removed under names that begin with a dot. That takes a moment, so an old unlocked
/// spool was left by a killed process.
void remove_half_made(const std::filesystem::path& folder) {
  std::error_code error;
  const auto age =
      std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(folder, error);
  if (error || age < std::chrono::hours(1) || !is_ours(folder)) return;
  const FolderLock folder_lock(folder);
  if (folder_lock.state() == LockState::held) std::filesystem::remove_all(folder, error);
}

}  // namespace

}  // namespace spool

Spool::Spool(const std::filesystem::path& directory, const std::string& tracker, const std::string& target) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const auto name = tracker + '-' + random_name();
  // The folder has a name that no other process picks up until it is locked and complete.
  folder_ = directory / ('.' + name);
  spool::make_folder(folder_);
  take_lock();
  try {
    spool::write(folder_ / spool::run, {{"tracker", tracker},
                                        {"target", target},
                                        {"host", host_name()},
                                        {"mount", spool::mount_of(folder_)}});
    end_ = AppendFile(folder_ / spool::entries, 0600);
    std::filesystem::rename(folder_, directory / name);
  } catch (const std::exception& e) {
    std::filesystem::remove_all(folder_, error);
    throw ArgumentError(fmt::format("{} can't be written: {}", folder_.string(), e.what()));
  }
  folder_ = directory / name;
  open_entries();
}

Spool::Spool(std::filesystem::path folder) : folder_(std::move(folder)) {}

// Only the holder of the folder's lock takes the file's lock, which disappears with the folder.
bool Spool::take_lock() {
  lock_ = std::make_unique<FolderLock>(folder_);
  if (lock_->state() != LockState::held) return false;
  file_lock_ = std::make_unique<LockFile>(folder_ / spool::lock);
  return file_lock_->state() == LockState::held;
}

// The entries stay readable if the folder is renamed or removed.
void Spool::open_entries() { entries_ = spool::open_file(folder_ / spool::entries); }

bool Spool::take_over(const std::string& tracker, const std::string& target) {
  if (!spool::is_ours(folder_)) return false;
  const auto run = spool::read_object(folder_ / spool::run);
  if (!spool::says(run, "tracker", tracker) || !spool::says(run, "target", target)) return false;
  if (!spool::is_of_this_machine(run, folder_) || !take_lock()) return false;
  open_entries();
  struct stat status {};
  if (!entries_ || ::fstat(entries_.get(), &status) != 0) return false;
  size_ = static_cast<std::int64_t>(status.st_size);
  const auto sent = spool::read_object(folder_ / spool::sent);
  if (const auto bytes = sent.find("bytes"); bytes != sent.end() && bytes->is_number_integer())
    begin_ = std::clamp(bytes->get<std::int64_t>(), std::int64_t{0}, size_);
  if (const auto memory = sent.find("memory"); memory != sent.end() && memory->is_object()) memory_ = *memory;
  waiting_ = lines_between(begin_, size_);
  return true;
}

std::vector<std::unique_ptr<Spool>> Spool::abandoned(const std::filesystem::path& directory,
                                                     const std::string& tracker, const std::string& target) {
  std::multimap<std::filesystem::file_time_type, std::unique_ptr<Spool>> found;
  std::error_code error;
  // Without a range-for: another process may remove an entry meanwhile.
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const auto name = at->path().filename().string();
    if (name.starts_with('.' + tracker + '-')) spool::remove_half_made(at->path());
    if (!name.starts_with(tracker + '-') || !at->is_directory(gone)) continue;
    std::unique_ptr<Spool> one(new Spool(at->path()));
    if (one->take_over(tracker, target)) found.emplace(at->last_write_time(gone), std::move(one));
  }
  std::vector<std::unique_ptr<Spool>> spools;
  for (auto& [when, one] : found) spools.push_back(std::move(one));
  return spools;
}

Spool::~Spool() {
  // A folder that isn't open, or that another process has locked, isn't ours to remove.
  if (!entries_ || waiting_ > 0 || lock_->state() == LockState::taken) return;
  // Renamed first, so that no other process picks it up if this one is killed before the folder is gone.
  auto gone = folder_;
  gone.replace_filename('.' + folder_.filename().string());
  std::error_code error;
  std::filesystem::rename(folder_, gone, error);
  // Closed before the removal: a network file system keeps removed files, and thus their folder, while they
  // are open.
  entries_.close();
  end_ = AppendFile();
  file_lock_.reset();
  std::filesystem::remove_all(error ? folder_ : gone, error);
}

bool Spool::append(const nlohmann::ordered_json& entry, std::int64_t max_bytes) noexcept {
  try {
    const auto line = json_line(entry) + '\n';
    const std::lock_guard lock(mutex_);
    if (size_ - begin_ + static_cast<std::int64_t>(line.size()) > max_bytes || !end_.append(line))
      return false;
    size_ = end_.size();
    ++waiting_;
    return true;
  } catch (...) {
    return false;
  }
}

Spool::Front Spool::front(std::size_t max_entries, std::size_t max_bytes) const {
  Front result;
  std::int64_t size = 0;
  {
    const std::lock_guard lock(mutex_);
    result.end = begin_;
    size = size_;
  }
  const auto begin = result.end;
  std::string text;
  for (std::size_t line = 0; result.entries.size() < max_entries;) {
    const auto newline = text.find('\n', line);
    if (newline == text.npos) {
      if (!result.entries.empty() && text.size() > max_bytes) break;
      const auto at = begin + std::ssize(text);
      const auto more = spool::read(entries_, at, std::min(spool::part, size - at));
      if (more.empty()) break;
      text += more;
      continue;
    }
    if (!result.entries.empty() && newline > max_bytes) break;
    auto entry =
        nlohmann::ordered_json::parse(std::string_view(text).substr(line, newline - line), nullptr, false);
    line = newline + 1;
    result.end = begin + static_cast<std::int64_t>(line);
    if (!entry.is_object()) {
      ++result.unreadable;
      continue;
    }
    result.entries.push_back(std::move(entry));
    result.ends.push_back(result.end);
  }
  return result;
}

std::int64_t Spool::lines_between(std::int64_t begin, std::int64_t end) const {
  std::int64_t lines = 0;
  while (begin < end) {
    const auto text = spool::read(entries_, begin, std::min(spool::part, end - begin));
    if (text.empty()) break;
    lines += std::ranges::count(text, '\n');
    begin += std::ssize(text);
  }
  return lines;
}

void Spool::advance(std::int64_t end, const nlohmann::ordered_json& memory) {
  const auto done = lines_between(begin_, end);
  memory_ = memory;
  bool is_long = false;
  {
    const std::lock_guard lock(mutex_);
    begin_ = end;
    waiting_ -= done;
    is_long = begin_ == size_ && size_ > (std::int64_t{1} << 20);
  }
  // Keeps the file of a run that lasts weeks from growing. The restart is recorded before it happens: a
  // process killed in between sends some entries twice, and loses none.
  if (!write_down(is_long ? 0 : end) || !is_long) return;
  {
    const std::lock_guard lock(mutex_);
    if (begin_ == size_ && end_ && end_.clear()) begin_ = size_ = 0;
  }
  if (begin_ != 0) write_down(begin_);
}

// The lock isn't held here, since the training waits for it.
bool Spool::write_down(std::int64_t begin) const {
  try {
    spool::write(folder_ / spool::sent, {{"bytes", begin}, {"memory", memory_}});
    return true;
  } catch (const Error&) {
    return false;  // the disk is full: the next process sends some entries twice
  }
}

bool Spool::empty() const { return count() == 0; }

std::int64_t Spool::count() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

std::string Spool::keep(const std::filesystem::path& file, std::int64_t max_bytes) {
  const auto refusal = [&](const std::string& why) {
    return ArgumentError(fmt::format("{} can't be kept: {}", file.string(), why));
  };
  const auto folder = folder_ / spool::files;
  spool::make_folder(folder);
  auto name = std::to_string(kept_++);
  std::error_code error;
  // A hard link to a symbolic link would keep only the link.
  const auto real = std::filesystem::canonical(file, error);
  const auto size = error ? 0 : std::filesystem::file_size(real, error);
  if (error) throw refusal(error.message());
  // Bytes of kept files that exist only here, and of those that will once their originals are removed.
  std::int64_t alone = 0, shared = 0;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat status {};
    if (::lstat(at->path().c_str(), &status) == 0) (status.st_nlink > 1 ? shared : alone) += status.st_size;
  }
  const auto check_alone = [&] {
    if (alone > max_bytes)
      throw refusal(fmt::format("files that are only in {} may take {} bytes", folder.string(), max_bytes));
  };
  check_alone();
  // Some file systems don't report their size.
  if (const auto disk = std::filesystem::space(folder, error); !error && disk.capacity > 0) {
    const auto spare = std::min(disk.capacity / 100, static_cast<std::uintmax_t>(max_bytes));
    if (disk.available < spare + size + static_cast<std::uintmax_t>(shared))
      throw refusal(
          fmt::format("less than {} bytes of the disk of {} would be left", spare, folder.string()));
  }
  std::filesystem::create_hard_link(real, kept(name), error);
  if (!error) return name;
  alone += static_cast<std::int64_t>(size);
  check_alone();
  if (std::filesystem::copy_file(real, kept(name), error); !error) return name;
  const auto why = error.message();
  std::filesystem::remove(kept(name), error);  // a partial copy
  throw refusal(why);
}

void Spool::let_go(const std::string& name) const {
  std::error_code error;
  std::filesystem::remove(kept(name), error);
}

std::filesystem::path Spool::kept(const std::string& name) const {
  if (name.empty() || name.find_first_not_of("0123456789") != name.npos)
    throw ArgumentError(fmt::format("'{}' is not the name of a kept file", name));
  return folder_ / spool::files / name;
}

}  // namespace etude::inline v0::detail
