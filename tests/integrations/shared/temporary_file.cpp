#include "etude/integrations/shared/temporary_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace integrations_shared_temporary_file_test {

using etude::detail::TemporaryFile;

TEST_CASE("a temporary file has its bytes, for its owner alone, until it is destroyed") {
  const toy::Folder folder;
  const std::string bytes("a\0b", 3);
  {
    const TemporaryFile file(folder / "", bytes), other(folder / "", "");
    CHECK(toy::names_in(folder / "").size() == 2);
    CHECK(toy::read_text(file.path()) == bytes);
    struct stat status {};
    REQUIRE(::stat(file.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
  }
  CHECK(toy::names_in(folder / "").empty());
}

TEST_CASE("a temporary file in a folder that doesn't exist is an error") {
  const toy::Folder folder;
  CHECK_THROWS_AS(TemporaryFile(folder / "none", "x"), etude::ArgumentError);
}

}  // namespace integrations_shared_temporary_file_test
