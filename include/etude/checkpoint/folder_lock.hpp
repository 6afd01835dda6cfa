#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "etude/checkpoint/file_system.hpp"

namespace etude {
namespace detail {

/// The lock by which a folder's writer tells that it lives. It ends with the process, however that ends.
class FolderLock {
 public:
  enum class State { held, taken, unknown };

  explicit FolderLock(const std::filesystem::path& folder)
      : file_(uninterrupted(
            [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); })) {
    if (!file_ || uninterrupted([&] { return ::flock(file_.get(), LOCK_EX | LOCK_NB); }) != 0) {
      state_ = errno == EWOULDBLOCK ? State::taken : State::unknown;
    } else if (struct stat mine{}, now{}; ::fstat(file_.get(), &mine) != 0 ||
                                          ::lstat(folder.c_str(), &now) != 0 || mine.st_dev != now.st_dev ||
                                          mine.st_ino != now.st_ino) {
      state_ = State::unknown;  // it was removed while we asked
    } else {
      state_ = State::held;
    }
  }

  State state() const { return state_; }

 private:
  Descriptor file_;
  State state_;
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
