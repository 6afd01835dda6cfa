#include "etude/io/folder_lock.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>

#include "common/folder.hpp"

namespace io_folder_lock_test {

namespace fs = std::filesystem;
using Lock = etude::detail::FolderLock;

TEST_CASE("a folder has one lock, which is released with its holder") {
  const toy::Folder folder;
  std::optional<Lock> first(std::in_place, std::string(folder));
  CHECK((first->state() == Lock::State::held));
  CHECK((Lock(std::string(folder)).state() == Lock::State::taken));
  first.reset();
  CHECK((Lock(std::string(folder)).state() == Lock::State::held));
}

TEST_CASE("anything but a folder can't be locked") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  fs::create_directory_symlink(std::string(folder), folder / "link");
  for (const auto* name : {"missing", "file", "link"}) {
    CAPTURE(name);
    CHECK((Lock(folder / name).state() == Lock::State::unknown));
    CHECK_FALSE(etude::is_abandoned(folder / name));
    CHECK_FALSE(etude::remove_abandoned(etude::default_file_system(), folder / name));
  }
  CHECK(fs::exists(folder / "file"));
  CHECK(fs::is_symlink(folder / "link"));
}

TEST_CASE("abandoned folders are removed, with their contents") {
  const toy::Folder folder;
  fs::create_directories(folder / "a/b");
  toy::write_text(folder / "a/b/file", "x");
  CHECK(etude::is_abandoned(folder / "a"));
  {
    const Lock writer(folder / "a");
    CHECK_FALSE(etude::is_abandoned(folder / "a"));
    CHECK_FALSE(etude::remove_abandoned(etude::default_file_system(), folder / "a"));
    CHECK(fs::exists(folder / "a/b/file"));
  }
  CHECK(etude::remove_abandoned(etude::default_file_system(), folder / "a"));
  CHECK_FALSE(fs::exists(folder / "a"));
}

TEST_CASE("a lock file has one holder, and is removed by it") {
  using etude::detail::LockFile;
  using etude::detail::LockState;
  const toy::Folder folder;
  {
    const LockFile first(folder / "lock");
    CHECK((first.state() == LockState::held));
    {
      const LockFile second(folder / "lock");
      CHECK((second.state() == LockState::taken));
    }
    CHECK(fs::exists(folder / "lock"));
    // The file has been replaced, so the holder must not remove the new one.
    fs::remove(folder / "lock");
    toy::write_text(folder / "lock", "another's");
  }
  CHECK(fs::exists(folder / "lock"));
  {
    const LockFile next(folder / "lock");  // takes over a crashed process's file
    CHECK((next.state() == LockState::held));
  }
  CHECK_FALSE(fs::exists(folder / "lock"));
  CHECK((LockFile(folder / "missing" / "lock").state() == LockState::unknown));
}

}  // namespace io_folder_lock_test
