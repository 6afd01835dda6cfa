#include "etude/formats/zip_archive.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/zip_bytes.hpp"
#include "etude/base/error.hpp"

namespace formats_zip_archive_test {

using toy::contains;
using toy::ZipEntry;

std::string fault_of(const std::string& bytes) {
  const auto fault = toy::fault_of<etude::CheckpointError>([&] {
    const etude::ZipArchive archive(bytes, "x.zip");
    for (const auto& [name, entry] : archive.entries()) archive.read(entry);
  });
  CHECK((fault == "nothing was thrown" || fault.starts_with("x.zip: ")));
  return fault;
}
std::string fault_of(const std::vector<ZipEntry>& entries) { return fault_of(toy::zip_bytes(entries)); }

TEST_CASE("entries are read by name, from a file and from memory") {
  const auto bytes = toy::zip_bytes({{"b/c", "text"}, {"a", std::string("\0\1\2", 3)}, {"empty", ""}});
  const toy::Folder folder;
  toy::write_text(folder / "x.zip", bytes);
  const auto check = [&](const etude::ZipArchive& archive) {
    CHECK(archive.entries().size() == 3);
    CHECK(archive.file_size() == bytes.size());
    REQUIRE(archive.find("b/c"));
    CHECK(archive.find("b/c")->size == 4);
    CHECK(archive.read(*archive.find("b/c")) == "text");
    CHECK(archive.read(*archive.find("a")) == std::string("\0\1\2", 3));
    CHECK(archive.read(*archive.find("empty")).empty());
    CHECK(archive.find("c") == nullptr);
  };
  check(etude::ZipArchive(folder / "x.zip"));
  check(etude::ZipArchive(bytes, "x.zip"));
}

TEST_CASE("a file that isn't an archive is refused, with its path") {
  const toy::Folder folder;
  const auto fault = [&](const std::filesystem::path& path) -> std::string {
    return toy::fault_of<etude::CheckpointError>([&] { etude::ZipArchive{path}; });
  };
  toy::write_text(folder / "text", "not a zip archive");
  toy::write_text(folder / "empty", "");
  CHECK(contains(fault(folder / "text"), (folder / "text").string() + ": it isn't a whole zip archive: "));
  CHECK(contains(fault(folder / "empty"), "it isn't a whole zip archive"));
  CHECK(contains(fault(folder / "missing"), "can't be opened: No such file or directory"));
  CHECK(contains(fault(std::filesystem::path(folder)), "it isn't a file"));
}

TEST_CASE("an archive that ends anywhere but at its end is refused") {
  const auto whole = toy::zip_bytes({{"a", "text"}, {"b", "more"}});
  REQUIRE(fault_of(whole) == "nothing was thrown");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK(contains(fault_of(whole.substr(0, size)), "it isn't a whole zip archive"));
  }
}

TEST_CASE("a flipped bit in the data is detected") {
  const auto whole = toy::zip_bytes({{"a", "text"}});
  const auto begin = whole.find("text");
  for (std::size_t byte = begin; byte < begin + 4; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      auto damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      CHECK(contains(fault_of(damaged), "entry 'a': CRC error"));
    }
  }
}

TEST_CASE("an inconsistent archive is refused") {
  CHECK(fault_of({{"a", "text"}}) == "nothing was thrown");
  CHECK(fault_of({ZipEntry{"a", "text"}, ZipEntry{"a", "text"}}) ==
        "x.zip: it has two entries with the same name");
  CHECK(contains(fault_of({{.name = "a", .data = "text", .size = 5}}), "entry 'a': its two sizes differ"));
  CHECK(contains(fault_of({{.name = "a", .data = "text", .size = 0xfffffffe}}),
                 "entry 'a': its two sizes differ"));
  CHECK(fault_of({{.name = "a", .data = "text", .size = 0xfffffffe, .compressed_size = 0xfffffffe}}) !=
        "nothing was thrown");
  CHECK(fault_of({{.name = "a", .data = "text", .size = 3, .compressed_size = 3}}) != "nothing was thrown");
  CHECK(contains(fault_of({{.name = "a", .data = "text", .checksum = 0}}), "entry 'a': CRC error"));
  CHECK(contains(fault_of({{.name = "a", .data = "text", .method = 12}}),
                 "its compression method is 12; 0 (none)"));
  CHECK(contains(fault_of({{.name = "a", .data = "text", .flags = 1}}), "entry 'a': it is encrypted"));
  CHECK(fault_of({{.name = "a", .data = "text", .offset = 1000}}) != "nothing was thrown");
}

TEST_CASE("entries that share their bytes are refused") {
  const std::string data(1000, 'x');
  CHECK(contains(fault_of({{"a", data}, {.name = "b", .data = data, .offset = 0}}),
                 "it isn't a whole zip archive"));
  // The data of "a" is the complete entry "b", header and data, and both are valid.
  const auto inner = toy::zip_bytes({{"b", data}}).substr(0, 31 + data.size());
  CHECK(fault_of({ZipEntry{"a", inner}}) == "nothing was thrown");
  CHECK(contains(fault_of({{"a", inner}, {.name = "b", .data = data, .offset = 31}}),
                 "entry 'b': it goes past the end of the file"));
}

TEST_CASE("names that lead out of the archive are refused") {
  for (const std::string name : {"../a", "a/../../b", "a/..", "..", "/a", "..\\a", "a\\b"}) {
    CAPTURE(name);
    CHECK(contains(fault_of({{name, "text"}}), "its name leads out of the archive"));
  }
  for (const std::string name : {"..a", "a..", "a/.b/c", "folder/"}) {
    CAPTURE(name);
    CHECK(fault_of({{name, ""}}) == "nothing was thrown");
  }
}

}  // namespace formats_zip_archive_test
