#include "etude/io/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace etude::inline v0::detail {

LockState lock_state(const Descriptor& file, const std::filesystem::path& path) {
  if (!file || uninterrupted([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) != 0)
    return errno == EWOULDBLOCK ? LockState::taken : LockState::unknown;
  struct stat mine {
  }, now{};
  const bool is_there = ::fstat(file.get(), &mine) == 0 && ::lstat(path.c_str(), &now) == 0 &&
                        mine.st_dev == now.st_dev && mine.st_ino == now.st_ino;
  return is_there ? LockState::held
                  : LockState::unknown;  // it may have been removed while it was being locked
}

LockFile::LockFile(std::filesystem::path path) : path_(std::move(path)) {
  // The previous holder may remove the file after it is opened here and before it is locked.
  for (int attempt = 0; state_ == LockState::unknown && attempt < 100; ++attempt) {
    file_ = Descriptor(uninterrupted(
        [&] { return ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666); }));
    if (!file_) {
      open_error_ = errno;
      return;
    }
    state_ = lock_state(file_, path_);
  }
  if (state_ == LockState::unknown) ::unlink(path_.c_str());  // the file system has no locks
}

}  // namespace etude::inline v0::detail

namespace etude::inline v0 {

bool remove_abandoned(FileSystem& files, const std::filesystem::path& partial) {
  const detail::FolderLock lock(partial);
  if (lock.state() != detail::FolderLock::State::held) return false;
  files.remove_all(partial);
  return true;
}

}  // namespace etude::inline v0
