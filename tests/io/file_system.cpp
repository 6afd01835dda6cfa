#include "etude/io/file_system.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "common/failing_files.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace io_file_system_test {

using toy::fault_of;

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST_CASE("a file contains the written pieces in order") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  toy::write_text(folder / "a", "an older and longer text");
  const auto file = files.create(folder / "a");
  file->write(bytes_of("first "));
  file->write({});
  file->write(bytes_of(std::string("second\0", 7)));
  file->finish();
  CHECK(toy::read_text(folder / "a") == std::string("first second\0", 13));
}

TEST_CASE("errors name the path and the system's reason") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  const auto missing = folder / "missing/file";
  CHECK(fault_of([&] { files.create(missing); }) ==
        missing.string() + " can't be written: No such file or directory");
  CHECK(fault_of([&] { files.sync(missing); }) ==
        missing.string() + " can't be written: No such file or directory");
  CHECK(fault_of([&] { files.rename(missing, folder / "b"); }) ==
        missing.string() + " can't be renamed to " + (folder / "b").string() + ": No such file or directory");
  toy::write_text(folder / "file", "");
  CHECK(fault_of([&] { files.create_directories(folder / "file/inside"); }) ==
        (folder / "file").string() + " can't be created: Not a directory");
  CHECK(fault_of([&] { files.create_directories(folder / "file"); }) ==
        (folder / "file").string() + " can't be created: Not a directory");
}

TEST_CASE("writing to a full disk is an error" * doctest::skip(!fs::exists("/dev/full"))) {
  const auto file = etude::default_file_system().create("/dev/full");
  CHECK(fault_of([&] { file->write(bytes_of("x")); }) ==
        "/dev/full can't be written: No space left on device");
}

TEST_CASE("a partial write continues, and reports why it ends") {
  const toy::Folder folder;
  const auto path = folder / "limited";
  const auto file = etude::default_file_system().create(path);
  struct rlimit before {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {1000, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto fault = fault_of([&] { file->write(bytes_of(std::string(1500, 'x'))); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(fault == path.string() + " can't be written: File too large");
  CHECK(toy::read_text(path) == std::string(1000, 'x'));
}

TEST_CASE("folders are created with their parents, and an existing one stays") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  files.create_directories(folder / "a/b/c/");
  toy::write_text(folder / "a/b/c/file", "x");
  files.create_directories(folder / "a/b/c");
  CHECK(toy::read_text(folder / "a/b/c/file") == "x");
  files.remove_all(folder / "a");
  CHECK_FALSE(fs::exists(folder / "a"));
  files.remove_all(folder / "a");
}

TEST_CASE("existing files and folders can be synchronised") {
  const toy::Folder folder;
  toy::write_text(folder / "a", "x");
  auto& files = etude::default_file_system();
  CHECK_NOTHROW(files.sync(folder / "a"));
  CHECK_NOTHROW(files.sync(std::string(folder)));
  CHECK_NOTHROW(files.sync(""));
  CHECK_THROWS_AS(files.sync(folder / "b"), etude::CheckpointError);
}

TEST_CASE("write_file replaces a file with the whole new one, or leaves it") {
  const toy::Folder folder;
  toy::FailingFiles whole;
  etude::write_file(whole, folder / "state.json", "new");
  CHECK(toy::read_text(folder / "state.json") == "new");
  // The bytes are on the disk before the name.
  REQUIRE(whole.operations.size() == 5);
  const std::vector<std::string> verbs = {"create", "write", "finish", "rename"};
  for (std::size_t i = 0; i < verbs.size(); ++i) {
    CAPTURE(whole.operations[i]);
    CHECK(whole.operations[i].starts_with(verbs[i] + " .state.json."));
    CHECK(whole.operations[i].ends_with(".partial"));
  }
  CHECK(whole.operations[4] == "sync " + fs::path(std::string(folder)).filename().string());
  const auto partials = [&] {
    return std::ranges::count_if(fs::directory_iterator(std::string(folder)),
                                 [](const auto& entry) { return entry.path().extension() == ".partial"; });
  };
  for (const bool crash : {false, true}) {
    for (std::int64_t at = 1; at <= 5; ++at) {
      CAPTURE(at);
      toy::write_text(folder / "state.json", "old");
      toy::FailingFiles files(at, crash);
      const auto before = partials();
      CHECK_THROWS_WITH_AS(etude::write_file(files, folder / "state.json", "new"),
                           doctest::Contains("No space left on device"), etude::CheckpointError);
      CHECK(toy::read_text(folder / "state.json") == (at == 5 ? "new" : "old"));
      CHECK(partials() - before == (crash && at > 1 && at < 5));
    }
  }
}

TEST_CASE("two concurrent writers of one file don't mix their data") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  etude::detail::write_atomically(files, folder / "a", [&](etude::OutputFile& file) {
    file.write(bytes_of("first"));
    etude::write_file(files, folder / "a", "second, and longer");
    CHECK(toy::read_text(folder / "a") == "second, and longer");
  });
  CHECK(toy::read_text(folder / "a") == "first");
}

TEST_CASE("a file isn't written through a symbolic link") {
  const toy::Folder folder;
  toy::write_text(folder / "theirs", "theirs");
  fs::create_symlink(folder / "theirs", folder / "link");
  CHECK(fault_of([&] {
          etude::default_file_system().create(folder / "link");
        }).starts_with((folder / "link").string() + " can't be written: "));
  CHECK(toy::read_text(folder / "theirs") == "theirs");
}

TEST_CASE("two folders are swapped, or both stay") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  toy::write_text(folder / "a/file", "a");
  const bool done = files.exchange(folder / "a", folder / "b");
  CHECK(fs::exists(folder / "a/file") == !done);
  CHECK(fs::exists(folder / "b/file") == done);
  CHECK_FALSE(files.exchange(folder / "a", folder / "missing"));
  CHECK(fs::exists(folder / "a"));
}

TEST_CASE("links are created, but don't replace anything") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  CHECK(files.create_symlink("target", folder / "link"));
  CHECK(fs::read_symlink(folder / "link") == "target");
  CHECK(fault_of([&] { files.create_symlink("other", folder / "link"); }) ==
        (folder / "link").string() + " can't be created: File exists");
}

TEST_CASE("write_file works in the current folder") {
  const toy::Folder folder;
  const auto before = fs::current_path();
  fs::current_path(std::string(folder));
  etude::write_file(etude::default_file_system(), "here", "x");
  fs::current_path(before);
  CHECK(toy::read_text(folder / "here") == "x");
}

}  // namespace io_file_system_test
