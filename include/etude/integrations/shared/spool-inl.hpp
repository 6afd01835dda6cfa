#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "etude/checkpoint/file_system.hpp"
#include "etude/error.hpp"
#include "etude/integrations/shared/spool.hpp"
#include "etude/linkage.hpp"

namespace etude::detail {
namespace spool {

inline constexpr std::string_view entries = "entries.jsonl", sent = "sent.json", run = "run.json",
                                  files = "files";

inline std::string read(const std::filesystem::path& path, std::size_t at_most) {
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

/// Null if it isn't one.
inline nlohmann::ordered_json read_object(const std::filesystem::path& path) {
  auto json = nlohmann::ordered_json::parse(read(path, std::size_t{1} << 20), nullptr, false);
  return json.is_object() ? json : nlohmann::ordered_json();
}

inline void write(const std::filesystem::path& path, const nlohmann::ordered_json& json) {
  const auto text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  write_atomically(default_file_system(), path,
                   [&](OutputFile& file) { file.write(std::as_bytes(std::span(text))); });
}

inline nlohmann::ordered_json description(const std::string& tracker, const std::string& target) {
  return {{"tracker", tracker}, {"target", target}};
}

inline void make_folder(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    throw ArgumentError(fmt::format("{} can't be made: {}", path.string(), std::strerror(errno)));
}

}  // namespace spool

ETUDE_INLINE Spool::Spool(const std::filesystem::path& directory, const std::string& tracker,
                          const std::string& target) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const auto name = tracker + '-' + random_name();
  // Under a name that nobody looks for until it is locked.
  folder_ = directory / ('.' + name);
  spool::make_folder(folder_);
  lock_ = std::make_unique<FolderLock>(folder_);
  try {
    spool::write(folder_ / spool::run, spool::description(tracker, target));
    std::filesystem::rename(folder_, directory / name);
  } catch (const std::exception& e) {
    throw ArgumentError(fmt::format("{} can't be written: {}", folder_.string(), e.what()));
  }
  folder_ = directory / name;
  end_ = AppendFile(folder_ / spool::entries, 0600);
  open_entries();
}

ETUDE_INLINE Spool::Spool(std::filesystem::path folder)
    : folder_(std::move(folder)), lock_(std::make_unique<FolderLock>(folder_)) {}

ETUDE_INLINE void Spool::open_entries() {
  const auto path = folder_ / spool::entries;
  entries_ =
      Descriptor(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC); }));
}

ETUDE_INLINE bool Spool::take_over(const std::string& tracker, const std::string& target) {
  // What somebody else can put there would be sent with our credentials.
  struct stat folder {};
  if (::lstat(folder_.c_str(), &folder) != 0 || folder.st_uid != ::geteuid() || (folder.st_mode & 022) != 0)
    return false;
  if (lock_->state() != LockState::held) return false;
  const auto run = spool::read_object(folder_ / spool::run);
  if (run != spool::description(tracker, target)) return false;
  open_entries();
  struct stat facts {};
  if (!entries_ || ::fstat(entries_.get(), &facts) != 0) return false;
  size_ = static_cast<std::int64_t>(facts.st_size);
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

ETUDE_INLINE std::vector<std::unique_ptr<Spool>> Spool::abandoned(const std::filesystem::path& directory,
                                                                  const std::string& tracker,
                                                                  const std::string& target) {
  std::vector<std::pair<std::filesystem::file_time_type, std::unique_ptr<Spool>>> found;
  std::error_code error;
  // By hand: another process may remove one while we look.
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    if (!at->path().filename().string().starts_with(tracker + '-') || !at->is_directory(gone)) continue;
    std::unique_ptr<Spool> one(new Spool(at->path()));
    if (one->take_over(tracker, target)) found.emplace_back(at->last_write_time(gone), std::move(one));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::unique_ptr<Spool>> spools;
  for (auto& [when, one] : found) spools.push_back(std::move(one));
  return spools;
}

ETUDE_INLINE Spool::~Spool() {
  // Of one that couldn't be locked nobody knows whose it is.
  if (!entries_ || waiting_ > 0 || lock_->state() == LockState::taken) return;
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
}

ETUDE_INLINE bool Spool::append(const nlohmann::ordered_json& entry, std::int64_t max_bytes) noexcept {
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

ETUDE_INLINE Spool::Front Spool::front(std::size_t max_entries, std::size_t max_bytes) const {
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

ETUDE_INLINE void Spool::advance(std::int64_t end, const nlohmann::ordered_json& memory) {
  std::int64_t done = 0;
  {
    // What is counted lies before the end, which nobody changes.
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
  // So that the file of a run that goes on for weeks doesn't grow. That it begins anew is written down before
  // it does: who is killed between the two sends some of it twice, and loses nothing.
  if (!write_down(is_long ? 0 : end) || !is_long) return;
  {
    const std::lock_guard lock(mutex_);
    if (begin_ == size_ && end_ && end_.clear()) begin_ = size_ = 0;
  }
  if (begin_ != 0) write_down(begin_);
}

// Not under the lock, which the training waits for.
ETUDE_INLINE bool Spool::write_down(std::int64_t begin) const {
  try {
    spool::write(folder_ / spool::sent, {{"bytes", begin}, {"memory", memory_}});
    return true;
  } catch (const Error&) {
    return false;  // The disk is full: who takes over sends some of it twice.
  }
}

ETUDE_INLINE bool Spool::empty() const { return count() == 0; }

ETUDE_INLINE std::int64_t Spool::count() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

ETUDE_INLINE std::string Spool::keep(const std::filesystem::path& file) {
  spool::make_folder(folder_ / spool::files);
  const auto name = std::to_string(kept_++);
  const auto kept = folder_ / spool::files / name;
  std::error_code error;
  std::filesystem::create_hard_link(file, kept, error);
  if (error) std::filesystem::copy_file(file, kept, error);
  if (error) throw ArgumentError(fmt::format("{} can't be kept: {}", file.string(), error.message()));
  return name;
}

ETUDE_INLINE std::filesystem::path Spool::kept(const std::string& name) const {
  if (name.empty() || name.find_first_not_of("0123456789") != name.npos)
    throw ArgumentError(fmt::format("'{}' is no name of a kept file", name));
  return folder_ / spool::files / name;
}

}  // namespace etude::detail
