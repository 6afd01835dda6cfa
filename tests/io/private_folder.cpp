#include "etude/io/private_folder.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"

namespace io_private_folder_test {

using etude::detail::PrivateFolder;

/// Sets the temporary directory during its lifetime.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& path) {
    if (const char* before = ::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", path.c_str(), 1);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    if (before_)
      ::setenv("TMPDIR", before_->c_str(), 1);
    else
      ::unsetenv("TMPDIR");
  }

 private:
  std::optional<std::string> before_;
};

TEST_CASE("only the user may enter a private folder, and it is removed with its content at the end") {
  const toy::Folder temporary;
  const TemporaryDirectory directory(temporary);
  std::filesystem::path path;
  {
    const PrivateFolder folder("test"), other("test");
    path = folder.path();
    CHECK(path.filename().string().starts_with("etude-test-"));
    CHECK(path != other.path());
    CHECK(toy::names_in(temporary / ".").size() == 2);
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0700);
    toy::write_text(path / "file", "text");
  }
  CHECK(toy::names_in(temporary / ".").empty());
}

TEST_CASE("the next private folder removes that of a killed process, and nothing else") {
  const toy::Folder temporary;
  const TemporaryDirectory directory(temporary);
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const auto child = ::fork();
  if (child == 0) {
    const PrivateFolder folder("test");
    toy::write_text(folder.path() / "file", "text");
    [[maybe_unused]] const auto written = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  REQUIRE(child > 0);
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  const auto left = toy::names_in(temporary / ".");
  REQUIRE(left.size() == 1);
  {
    const PrivateFolder folder("test");  // while the child lives, its folder stays
    CHECK(toy::names_in(temporary / ".").size() == 2);
  }
  CHECK(toy::names_in(temporary / ".") == left);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);

  std::filesystem::create_directory(temporary / "etude-testing");
  toy::write_text(temporary / "etude-test-file", "");
  std::filesystem::create_directory(temporary / "mine");
  std::filesystem::create_directory_symlink(temporary / "mine", temporary / "etude-test-link");
  const toy::Names others{"etude-testing", "etude-test-file", "etude-test-link", "mine"};
  { const PrivateFolder other_kind("kind"); }
  CHECK(toy::names_in(temporary / ".").size() == 5);
  { const PrivateFolder folder("test"); }
  CHECK(toy::names_in(temporary / ".") == others);
}

TEST_CASE("a temporary directory that can't be used is an error that says so") {
  const toy::Folder temporary;
  const TemporaryDirectory directory(temporary / "none");
  CHECK(toy::contains(toy::fault_of([] { PrivateFolder("test"); }), "temporary directory"));
}

}  // namespace io_private_folder_test
