#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "etude/io/descriptor.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/own_threads.hpp"

namespace etude::inline v0 {
namespace detail {

/// The result of trying to lock: `unknown` if the file system has no locks, or the attempt failed for another
/// reason.
enum class LockState { held, taken, unknown };

/// Locks the file or folder that was opened at `path`.
LockState lock_state(const Descriptor& file, const std::filesystem::path& path);

/// A lock that shows that a folder's writer is alive. It is released when the process ends, for whatever
/// reason. Network file systems may keep folder locks local to one host: two hosts must not write to the same
/// name.
class FolderLock {
 public:
  using State = LockState;

  explicit FolderLock(const std::filesystem::path& folder)
      : file_(uninterrupted(
            [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); })),
        state_(lock_state(file_, folder)) {}

  State state() const { return state_; }

 private:
  Descriptor file_;
  State state_;
};

/// A lock file, created and removed by its holder. The lock is released when the process ends, for whatever
/// reason, and works between hosts if the network file system forwards file locks. A child made by fork()
/// doesn't take it from its parent.
class LockFile {
 public:
  explicit LockFile(std::filesystem::path path);
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  ~LockFile() {
    if (file_ && !mark_.is_in_child() && lock_state(file_, path_) == LockState::held) ::unlink(path_.c_str());
  }

  LockState state() const { return state_; }

  /// The `errno` of the failed attempt to open or create the file; 0 if it succeeded.
  int open_error() const { return open_error_; }

  /// The lock file's descriptor, or -1 if the lock isn't held. The lock lasts as long as a process has this
  /// descriptor open.
  int descriptor() const { return state_ == LockState::held ? file_.get() : -1; }

  /// True if the lock was held, but its file has since been removed or replaced.
  bool is_lost() const { return state_ == LockState::held && lock_state(file_, path_) != LockState::held; }

 private:
  ForkMark mark_;
  std::filesystem::path path_;
  Descriptor file_;
  LockState state_ = LockState::unknown;
  int open_error_ = 0;
};

}  // namespace detail

/// True if `partial` was left behind by a FolderWriter whose process has ended. False if that can't be known,
/// on a file system without locks.
inline bool is_abandoned(const std::filesystem::path& partial) {
  return detail::FolderLock(partial).state() == detail::FolderLock::State::held;
}

/// Removes `partial` if it is abandoned; safe against a writer that starts at the same moment.
bool remove_abandoned(FileSystem& files, const std::filesystem::path& partial);

}  // namespace etude::inline v0
