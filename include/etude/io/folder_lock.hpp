#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "etude/io/descriptor.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/own_threads.hpp"

namespace etude {
namespace detail {

/// What became of asking for a lock; `unknown` where the file system has none or it can't be asked for.
enum class LockState { held, taken, unknown };

/// Takes the lock of a file or folder that was opened at `path`.
inline LockState lock_state(const Descriptor& file, const std::filesystem::path& path) {
  if (!file || uninterrupted([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) != 0)
    return errno == EWOULDBLOCK ? LockState::taken : LockState::unknown;
  struct stat mine {
  }, now{};
  const bool is_there = ::fstat(file.get(), &mine) == 0 && ::lstat(path.c_str(), &now) == 0 &&
                        mine.st_dev == now.st_dev && mine.st_ino == now.st_ino;
  return is_there ? LockState::held : LockState::unknown;  // it may have been removed while we asked
}

/// The lock by which a folder's writer tells that it lives. It ends with the process, however that ends.
/// Network file systems may keep the locks of folders to one host: a name that two hosts write must not be
/// the same on both.
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

/// A lock that is a file, made for it and removed by its holder. It ends with the process, however that ends,
/// and holds between hosts where a network file system passes the locks of files on. A child made by fork()
/// doesn't take it away from its parent.
class LockFile {
 public:
  explicit LockFile(std::filesystem::path path) : path_(std::move(path)) {
    // Who had it may remove it between our opening and locking it.
    for (int attempt = 0; state_ == LockState::unknown && attempt < 100; ++attempt) {
      file_ = Descriptor(uninterrupted(
          [&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666); }));
      if (!file_) return;
      state_ = lock_state(file_, path_);
    }
    if (state_ == LockState::unknown) ::unlink(path_.c_str());  // a file system without locks
  }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;
  ~LockFile() {
    if (file_ && !mark_.is_in_child() && lock_state(file_, path_) == LockState::held) ::unlink(path_.c_str());
  }

  LockState state() const { return state_; }

  /// Whether it was held and its file is gone, or another has taken its name.
  bool is_lost() const { return state_ == LockState::held && lock_state(file_, path_) != LockState::held; }

 private:
  ForkMark mark_;
  std::filesystem::path path_;
  Descriptor file_;
  LockState state_ = LockState::unknown;
};

}  // namespace detail

/// Whether `partial` is what a FolderWriter left behind whose process has ended. False where that can't be
/// known: a file system without locks.
inline bool is_abandoned(const std::filesystem::path& partial) {
  return detail::FolderLock(partial).state() == detail::FolderLock::State::held;
}

/// Removes `partial` if it is abandoned, in a way that a writer which begins at this moment survives.
inline bool remove_abandoned(FileSystem& files, const std::filesystem::path& partial) {
  const detail::FolderLock lock(partial);
  if (lock.state() != detail::FolderLock::State::held) return false;
  files.remove_all(partial);
  return true;
}

}  // namespace etude
