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
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0::detail {
namespace spool {

namespace {

constexpr std::string_view entries = "entries.jsonl", sent = "sent.json", run = "run.json", files = "files",
                           lock = "lock";

std::string read(const std::filesystem::path& path, std::size_t at_most) {
  const Descriptor file(
      uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
  std::string text(file ? at_most : 0, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const auto count =
        uninterrupted([&] { return ::read(file.get(), text.data() + size, text.size() - size); });
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

/// Null unless the file holds an object.
nlohmann::ordered_json read_object(const std::filesystem::path& path) {
  auto json = nlohmann::ordered_json::parse(read(path, std::size_t{1} << 20), nullptr, false);
  return json.is_object() ? json : nlohmann::ordered_json();
}

void write(const std::filesystem::path& path, const nlohmann::ordered_json& json) {
  const auto text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  write_atomically(default_file_system(), path,
                   [&](OutputFile& file) { file.write(std::as_bytes(std::span(text))); });
}

/// Identifies a mounted file system of the running machine: containers that see the same one see the same
/// locks. Empty if it has no name.
std::string mount_of(const std::filesystem::path& folder) {
  auto boot = read("/proc/sys/kernel/random/boot_id", 64);
  boot.resize(std::min(boot.find('\n'), boot.size()));
  struct stat status {};
  if (boot.empty() || ::stat(folder.c_str(), &status) != 0) return "";
  return fmt::format("{}:{}", boot, status.st_dev);
}

bool says(const nlohmann::ordered_json& json, const char* name, const std::string& value) {
  const auto found = json.find(name);
  return found != json.end() && *found == value;
}

bool is_of_this_machine(const nlohmann::ordered_json& json, const std::filesystem::path& folder) {
  const auto mount = mount_of(folder);
  return says(json, "host", host_name()) || (!mount.empty() && says(json, "mount", mount));
}

/// Entries placed there by others would be sent with our credentials.
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
/// one was left by a killed process.
void remove_half_made(const std::filesystem::path& folder) {
  std::error_code error;
  const auto age =
      std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(folder, error);
  if (error || age < std::chrono::hours(1) || !is_ours(folder)) return;
  const FolderLock folder_lock(folder);
  if (folder_lock.state() == LockState::held) std::filesystem::remove_all(folder, error);
}

}  // namespace

/// Bytes of kept files: those that exist only here, and those that will once the originals are removed.
struct Kept {
  std::int64_t alone = 0, shared = 0;
};

namespace {

Kept kept_in(const std::filesystem::path& folder) {
  Kept kept;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    struct stat status {};
    if (::lstat(at->path().c_str(), &status) == 0)
      (status.st_nlink > 1 ? kept.shared : kept.alone) += status.st_size;
  }
  return kept;
}

void keep_or_throw(const std::filesystem::path& file, const std::filesystem::path& kept,
                   std::int64_t max_bytes) {
  const auto refuse = [&](const std::string& why) {
    throw ArgumentError(fmt::format("{} can't be kept: {}", file.string(), why));
  };
  std::error_code error;
  // A hard link to a symbolic link would keep only the link.
  const auto real = std::filesystem::canonical(file, error);
  const auto size = error ? 0 : std::filesystem::file_size(real, error);
  if (error) refuse(error.message());
  const auto folder = kept.parent_path();
  const auto bytes = static_cast<std::int64_t>(size);
  const auto now = kept_in(folder);
  const auto check_alone = [&](std::int64_t more) {
    if (now.alone + more > max_bytes)
      refuse(fmt::format("files that are only in {} may take {} bytes", folder.string(), max_bytes));
  };
  check_alone(0);
  // Some file systems don't know their size.
  if (const auto disk = std::filesystem::space(folder, error); !error && disk.capacity > 0) {
    const auto spare = std::min(disk.capacity / 100, static_cast<std::uintmax_t>(max_bytes));
    if (disk.available < spare + size + static_cast<std::uintmax_t>(now.shared))
      refuse(fmt::format("less than {} bytes of the disk of {} would be left", spare, folder.string()));
  }
  std::filesystem::create_hard_link(real, kept, error);
  if (!error) return;
  check_alone(bytes);
  if (std::filesystem::copy_file(real, kept, error); !error) return;
  const auto why = error.message();
  std::filesystem::remove(kept, error);  // a partial copy
  refuse(why);
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

// The file's lock is only taken by the holder of the folder's; it disappears with the folder.
bool Spool::take_lock() {
  lock_ = std::make_unique<FolderLock>(folder_);
  if (lock_->state() != LockState::held) return false;
  file_lock_ = std::make_unique<LockFile>(folder_ / spool::lock);
  return file_lock_->state() == LockState::held;
}

void Spool::open_entries() {
  const auto path = folder_ / spool::entries;
  entries_ =
      Descriptor(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
}

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
  for (auto at = begin_; at < size_;) {  // only counted
    std::string part(std::size_t{1} << 16, '\0');
    const auto count = uninterrupted([&] { return ::pread(entries_.get(), part.data(), part.size(), at); });
    if (count <= 0) break;
    waiting_ += std::count(part.begin(), part.begin() + count, '\n');
    at += count;
  }
  return true;
}

std::vector<std::unique_ptr<Spool>> Spool::abandoned(const std::filesystem::path& directory,
                                                     const std::string& tracker, const std::string& target) {
  std::vector<std::pair<std::filesystem::file_time_type, std::unique_ptr<Spool>>> found;
  std::error_code error;
  // Without a range-for: another process may remove an entry meanwhile.
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const auto name = at->path().filename().string();
    if (name.starts_with('.' + tracker + '-')) spool::remove_half_made(at->path());
    if (!name.starts_with(tracker + '-') || !at->is_directory(gone)) continue;
    std::unique_ptr<Spool> one(new Spool(at->path()));
    if (one->take_over(tracker, target)) found.emplace_back(at->last_write_time(gone), std::move(one));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::unique_ptr<Spool>> spools;
  for (auto& [when, one] : found) spools.push_back(std::move(one));
  return spools;
}

Spool::~Spool() {
  // The owner of one that couldn't be locked is unknown.
  if (!entries_ || waiting_ > 0 || lock_->state() == LockState::taken) return;
  // A process killed in between leaves nothing that would be picked up.
  auto gone = folder_;
  gone.replace_filename('.' + folder_.filename().string());
  std::error_code error;
  std::filesystem::rename(folder_, gone, error);
  // A network file system keeps open files, and with them the folder.
  entries_.close();
  end_ = AppendFile();
  file_lock_.reset();
  std::filesystem::remove_all(error ? folder_ : gone, error);
}

bool Spool::append(const nlohmann::ordered_json& entry, std::int64_t max_bytes) noexcept {
  try {
    const auto line = entry.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
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
  std::int64_t begin = 0, end = 0;
  {
    const std::lock_guard lock(mutex_);
    begin = begin_;
    end = size_;
  }
  Front result;
  result.end = begin;
  std::string text;
  std::size_t line = 0;  // where the next one begins in `text`
  while (result.entries.size() < max_entries) {
    const auto newline = text.find('\n', line);
    if (newline == text.npos) {
      if (!result.entries.empty() && text.size() >= max_bytes) break;
      const auto old = text.size();
      const auto more =
          std::min<std::int64_t>(std::int64_t{1} << 16, end - begin - static_cast<std::int64_t>(old));
      if (more <= 0) break;
      text.resize(old + static_cast<std::size_t>(more));
      const auto count = uninterrupted([&] {
        return ::pread(entries_.get(), text.data() + old, static_cast<std::size_t>(more),
                       static_cast<off_t>(begin) + static_cast<off_t>(old));
      });
      text.resize(old + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
      if (count <= 0) break;
      continue;
    }
    if (!result.entries.empty() && newline > max_bytes) break;
    auto entry =
        nlohmann::ordered_json::parse(text.begin() + static_cast<std::ptrdiff_t>(line),
                                      text.begin() + static_cast<std::ptrdiff_t>(newline), nullptr, false);
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

void Spool::advance(std::int64_t end, const nlohmann::ordered_json& memory) {
  std::int64_t done = 0;
  {
    // The entries to count lie before the end, which doesn't change.
    std::string text(static_cast<std::size_t>(end - begin_), '\0');
    const auto count =
        uninterrupted([&] { return ::pread(entries_.get(), text.data(), text.size(), begin_); });
    done = std::count(text.begin(), text.begin() + std::max<ssize_t>(count, 0), '\n');
  }
  memory_ = memory;
  bool is_long = false;
  {
    const std::lock_guard lock(mutex_);
    begin_ = end;
    waiting_ -= done;
    is_long = begin_ == size_ && size_ > (std::int64_t{1} << 20);
  }
  // Keeps the file of a run of weeks from growing. The restart is recorded before it happens: a process
  // killed in between sends some entries twice, and loses none.
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
  spool::make_folder(folder_ / spool::files);
  auto name = std::to_string(kept_++);
  spool::keep_or_throw(file, folder_ / spool::files / name, max_bytes);
  return name;
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
