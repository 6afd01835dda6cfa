#include "etude/io/mapped_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace io_mapped_file_test {

TEST_CASE("a mapped file has the file's bytes") {
  const toy::Folder folder;
  const auto text = std::string("a\0b", 3) + std::string(10'000'000, 'x') + "end";
  toy::write_text(folder / "file", text);
  const etude::MappedFile file(folder / "file");
  CHECK((file.text() == text));
  CHECK(file.path() == folder / "file");
  std::string pieces;
  file.for_each_piece([&](std::span<const std::byte> piece) {
    pieces.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
  CHECK((pieces == text));
}

TEST_CASE("writes to the mapping don't reach the file") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "abc");
  etude::MappedFile file(folder / "file");
  file.bytes()[1] = std::byte{'X'};
  CHECK(file.text() == "aXc");
  CHECK(toy::read_text(folder / "file") == "abc");
  CHECK(etude::MappedFile(folder / "file").text() == "abc");
}

TEST_CASE("a mapping outlives the name of its file, and a new file with the name") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "abc");
  const etude::MappedFile file(folder / "file");
  toy::write_text(folder / "new", "xyz");
  std::filesystem::rename(folder / "new", folder / "file");
  CHECK(file.text() == "abc");
  std::filesystem::remove(folder / "file");
  CHECK(file.text() == "abc");
}

TEST_CASE("an empty file is mapped as zero bytes") {
  const toy::Folder folder;
  toy::write_text(folder / "empty", "");
  etude::MappedFile file(folder / "empty");
  CHECK(file.bytes().empty());
  CHECK(file.text().empty());
  int pieces = 0;
  file.for_each_piece([&](std::span<const std::byte>) { ++pieces; });
  CHECK(pieces == 0);
}

TEST_CASE("anything but a regular file is refused, without waiting for a pipe") {
  const toy::Folder folder;
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const auto& path :
       {folder / "pipe", std::filesystem::path(std::string(folder)), std::filesystem::path("/dev/zero")}) {
    CHECK_THROWS_WITH_AS(etude::MappedFile{path},
                         (path.string() + " can't be read: it isn't a regular file").c_str(),
                         etude::CheckpointError);
  }
  CHECK_THROWS_WITH_AS(etude::MappedFile{folder / "missing"},
                       ((folder / "missing").string() + " can't be read: No such file or directory").c_str(),
                       etude::CheckpointError);
}

}  // namespace io_mapped_file_test
