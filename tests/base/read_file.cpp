#include "etude/base/read_file.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>

#include "common/folder.hpp"

namespace base_read_file_test {

using etude::detail::read_file;

TEST_CASE("a file is read whole, whatever its bytes") {
  const toy::Folder folder;
  const std::string bytes("\0\r\n\xff\x1a end", 9);
  toy::write_text(folder / "file", bytes);
  CHECK(read_file(folder / "file") == bytes);
  toy::write_text(folder / "empty", "");
  CHECK(read_file(folder / "empty") == "");
}

TEST_CASE("a file of /proc, whose size is 0, is read whole") {
  CHECK(read_file("/proc/self/stat").value_or("").starts_with(std::to_string(::getpid()) + " ("));
}

TEST_CASE("what can't be read gives nothing") {
  const toy::Folder folder;
  CHECK_FALSE(read_file(folder / "missing"));
  CHECK_FALSE(read_file(folder / ""));
}

}  // namespace base_read_file_test
