#include "etude/io/folder.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>

#include "common/failing_files.hpp"
#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

#ifdef __linux__
#include <sys/fsuid.h>
#endif

namespace io_folder_test {

using toy::contains;
using toy::fault_of;

namespace fs = std::filesystem;

struct Place {
  toy::Folder folder;
  fs::path target = folder / "checkpoint-10", partial = folder / ".checkpoint-10.partial";

  void write(etude::FileSystem& files, const std::string& text) const {
    etude::FolderWriter writer(files, target, partial);
    writer.write_text("state.json", text);
    writer.write_text("tokenizer/vocab.json", text + text);
    writer.commit({.run = text});
  }
  void write(const std::string& text) const { write(etude::default_file_system(), text); }

  // Returns the text that a complete folder was written from, or why the folder is incomplete.
  std::string read() const {
    try {
      etude::FolderReader reader(target);
      reader.verify();
      const std::string text(reader.text("state.json"));
      CHECK(reader.text("tokenizer/vocab.json") == text + text);
      CHECK(reader.manifest()->run == text);
      return text;
    } catch (const etude::CheckpointError& error) {
      return error.what();
    }
  }

  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(std::string(folder)))
      names.insert(entry.path().filename());
    return names;
  }
};

TEST_CASE("a committed folder has its files, and a manifest of sizes and checksums") {
  const Place place;
  {
    etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
    CHECK(writer.folder() == place.partial);
    CHECK_FALSE(fs::exists(place.target));
    writer.write_text("a.txt", "abc");
    const auto file = writer.create("deep/er/b.bin");
    const std::string large(3'000'000, 'x');
    file->write(std::as_bytes(std::span(large)));
    file->write(std::as_bytes(std::span(large)));
    file->finish();
    writer.commit({.libtorch = "2.13.0", .global_step = 10, .files = {{"not there", {}}}});
    CHECK_FALSE(fs::exists(place.partial));
  }
  CHECK(place.names() == std::set<std::string>{"checkpoint-10"});
  etude::FolderReader reader(place.target);
  REQUIRE(reader.manifest());
  CHECK(reader.manifest()->libtorch == "2.13.0");
  CHECK(reader.manifest()->global_step == 10);
  // The output of xxhsum -H2 for "abc" and for six million x.
  const etude::Manifest::Files expected = {
      {"a.txt", {.size = 3, .xxh3_128 = "06b05ab6733a618578af5f94892f3950"}},
      {"deep/er/b.bin", {.size = 6'000'000, .xxh3_128 = "c6324c6c8a64acd0e35fc08a48c50011"}}};
  CHECK((reader.manifest()->files == expected));
  CHECK(reader.text("a.txt") == "abc");
  CHECK((reader.map("deep/er/b.bin")->text() == std::string(6'000'000, 'x')));
  reader.verify();
}

TEST_CASE("a file that an earlier folder has with the same bytes is a link to it, and outlives it") {
  const toy::Folder folder;
  auto& files = etude::default_file_system();
  const fs::path first = folder / "first", second = folder / "second";
  const auto write = [&](const fs::path& target, const std::string& same, const std::string& changed,
                         const etude::Manifest& manifest) {
    etude::FolderWriter writer(files, target, target.string() + ".partial");
    const auto add = [&](const std::string& name, const std::string& text) {
      writer.create_or_link(name, first, manifest,
                            [&](etude::OutputFile& file) { file.write(std::as_bytes(std::span(text))); });
    };
    add("parts/same", same);
    add("parts/changed", changed);
    writer.commit({.run = "r"});
  };
  write(first, "abc", "abc", {});
  write(second, "abc", "abd", etude::read_manifest(first));
  CHECK(fs::equivalent(first / "parts/same", second / "parts/same"));
  CHECK(!fs::equivalent(first / "parts/changed", second / "parts/changed"));
  const auto manifest = etude::read_manifest(first);
  fs::remove_all(first);
  etude::FolderReader reader(second);
  reader.verify();
  CHECK(reader.text("parts/same") == "abc");
  CHECK(reader.text("parts/changed") == "abd");
  write(folder / "third", "abc", "abc", manifest);  // the file to link to is gone
  CHECK(toy::read_text(folder / "third/parts/same") == "abc");
}

TEST_CASE("files that other code wrote into the folder are included") {
  const Place place;
  {
    etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
    writer.write_text("ours", "1");
    fs::create_directories(writer.folder() / "theirs/empty");
    toy::write_text(writer.folder() / "theirs/vocab.json", "abc");
    toy::write_text(writer.folder() / "empty", "");
    writer.commit({});
  }
  etude::FolderReader reader(place.target);
  CHECK((reader.manifest()->files.at("theirs/vocab.json") ==
         etude::ManifestFile{.size = 3, .xxh3_128 = "06b05ab6733a618578af5f94892f3950"}));
  CHECK(reader.manifest()->files.size() == 3);
  CHECK(reader.text("empty") == "");
  reader.verify();
}

TEST_CASE("a file that other code changed after it was written is included as it is") {
  const Place place;
  {
    etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
    writer.write_text("longer", "old");
    writer.write_text("same size", "old");
    toy::write_text(writer.folder() / "longer", "replaced");
    toy::write_text(writer.folder() / "same size", "new");
    fs::last_write_time(writer.folder() / "same size",
                        fs::file_time_type::clock::now() + std::chrono::hours(1));
    writer.commit({});
  }
  etude::FolderReader reader(place.target);
  CHECK(reader.text("longer") == "replaced");
  CHECK(reader.text("same size") == "new");
}

TEST_CASE("links, special files and the manifest's name are refused, and nothing is left") {
  const auto fault = [](auto&& add) {
    const Place place;
    const auto text = fault_of([&] {
      etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
      add(writer);
      writer.commit({});
    });
    CHECK(place.names().empty());
    return text;
  };
  CHECK(contains(fault([](auto& writer) { fs::create_symlink("/etc/hostname", writer.folder() / "link"); }),
                 "link is neither a file nor a folder"));
  CHECK(contains(fault([](auto& writer) { fs::create_symlink("/", writer.folder() / "root"); }),
                 "root is neither a file nor a folder"));
  CHECK(contains(fault([](auto& writer) { mkfifo((writer.folder() / "pipe").c_str(), 0600); }),
                 "pipe is neither a file nor a folder"));
  CHECK(contains(fault([](auto& writer) { toy::write_text(writer.folder() / etude::manifest_file, "{}"); }),
                 "it is the manifest's name"));
}

TEST_CASE("a folder is replaced by the next of its name") {
  const Place place;
  place.write("old");
  place.write("new");
  CHECK(place.read() == "new");
  CHECK(place.names() == std::set<std::string>{"checkpoint-10"});
}

TEST_CASE("a writer that doesn't commit leaves nothing behind, and the old folder unchanged") {
  const Place place;
  place.write("old");
  {
    etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
    writer.write_text("state.json", "new");
    CHECK(fs::exists(place.partial));
  }
  CHECK(place.read() == "old");
  CHECK(place.names() == std::set<std::string>{"checkpoint-10"});
}

TEST_CASE("an unfinished file can't be committed") {
  const Place place;
  etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
  writer.create("a")->write({});
  CHECK(contains(fault_of([&] { writer.commit({}); }), "a was not finished"));
  writer.write_text("a", "x");
  fs::remove(writer.folder() / "a");
  CHECK(contains(fault_of([&] { writer.commit({}); }), "a has disappeared"));
}

TEST_CASE("names with .. can't be written or read") {
  const Place place;
  etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
  for (const std::string name : {"../x", "/tmp/x", "a/../../x", "", "etude_manifest.json"}) {
    CAPTURE(name);
    CHECK(contains(fault_of([&] { writer.create(name); }), "can't be the name of a file in a checkpoint"));
  }
  writer.commit({});
  etude::FolderReader reader(place.target);
  CHECK(contains(fault_of([&] { reader.map("../x"); }), "can't be the name"));
  CHECK_FALSE(reader.has("../x"));
}

// Records the operations of a commit that replaces an old folder.
std::vector<std::string> operations_of_a_commit(bool can_exchange) {
  const Place place;
  place.write("old");
  toy::FailingFiles files;
  files.can_exchange = can_exchange;
  place.write(files, "new");
  CHECK(place.read() == "new");
  const auto parent = fs::path(std::string(place.folder)).filename().string();
  for (auto& operation : files.operations)
    if (operation == "sync " + parent) operation = "sync PARENT";
  return files.operations;
}

bool can_exchange_here() {
  const Place place;
  place.write("a");
  fs::create_directory(place.partial);
  return etude::default_file_system().exchange(place.partial, place.target);
}

std::vector<std::string> recover(const Place& place) {
  return etude::recover_replaced(etude::default_file_system(), std::string(place.folder),
                                 [&](const fs::path& path) { return path == place.target; });
}

TEST_CASE("the bytes are on disk before the names that lead to them") {
  const auto ends_with = [](const std::vector<std::string>& all, const std::vector<std::string>& last) {
    return all.size() > last.size() && std::equal(last.rbegin(), last.rend(), all.rbegin());
  };
  CHECK(ends_with(operations_of_a_commit(false),
                  {"create etude_manifest.json", "write etude_manifest.json", "finish etude_manifest.json",
                   "sync tokenizer", "sync .checkpoint-10.partial", "remove_all .checkpoint-10.replaced",
                   "rename checkpoint-10", "rename .checkpoint-10.partial", "sync PARENT",
                   "remove_all .checkpoint-10.replaced"}));
  if (!can_exchange_here()) return;
  CHECK(ends_with(operations_of_a_commit(true),
                  {"finish etude_manifest.json", "sync tokenizer", "sync .checkpoint-10.partial",
                   "exchange .checkpoint-10.partial", "sync PARENT", "remove_all .checkpoint-10.partial"}));
}

TEST_CASE("whatever fails, the old folder stays until the new one exists") {
  for (const bool can_exchange : {false, true}) {
    const auto count = static_cast<std::int64_t>(operations_of_a_commit(can_exchange).size());
    REQUIRE(count > 15);
    int kept = 0;
    for (std::int64_t at = 1; at <= count; ++at) {
      CAPTURE(at);
      const Place place;
      place.write("old");
      toy::FailingFiles files(at);
      files.can_exchange = can_exchange;
      if (at == count) {  // failing to remove the old folder isn't a failed write
        CHECK_NOTHROW(place.write(files, "new"));
      } else {
        CHECK_THROWS_WITH_AS(place.write(files, "new"), doctest::Contains("No space left on device"),
                             etude::CheckpointError);
      }
      const auto text = place.read();
      CHECK((text == "old" || text == "new"));
      kept += text == "old";
      // The old one is removed last, when the new one's name is on the disk.
      CHECK(place.names().size() == (at >= count - 1 ? 2 : 1));
    }
    CHECK(kept == count - 2);
  }
}

TEST_CASE("wherever the process ends, a complete folder exists after recover_replaced") {
  for (const bool can_exchange : {false, true}) {
    const auto count = static_cast<std::int64_t>(operations_of_a_commit(can_exchange).size());
    int kept = 0, moved = 0;
    for (std::int64_t at = 1; at <= count; ++at) {
      CAPTURE(at);
      const Place place;
      place.write("old");
      toy::FailingFiles files(at, true);
      files.can_exchange = can_exchange;
      try {
        place.write(files, "new");
      } catch (const etude::CheckpointError&) {
      }
      moved += !fs::exists(place.target);
      CHECK(recover(place).empty());
      const auto text = place.read();
      CHECK((text == "old" || text == "new"));
      kept += text == "old";
      etude::remove_abandoned(etude::default_file_system(), place.partial);
      CHECK(place.names() == std::set<std::string>{"checkpoint-10"});
      place.write("next");
      CHECK(place.read() == "next");
    }
    CHECK(moved == (can_exchange && can_exchange_here() ? 0 : 1));
    CHECK(kept == count - 2);
  }
}

TEST_CASE("if neither the new folder nor the old one can be put in place, the first error is reported") {
  const Place place;
  place.write("old");
  const auto operations = operations_of_a_commit(false);
  const auto at = std::ranges::find(operations, "rename .checkpoint-10.partial") - operations.begin() + 1;
  toy::FailingFiles files(at, true);
  files.can_exchange = false;
  CHECK(fault_of([&] { place.write(files, "new"); }) ==
        place.partial.string() + " can't be written: No space left on device");
  CHECK_FALSE(fs::exists(place.target));
  CHECK(recover(place).empty());
  CHECK(place.read() == "old");
}

TEST_CASE("recover_replaced reports folders that it can't restore, and restores the others") {
  const toy::Folder folder;
  for (const auto* name : {".a.replaced", ".b.replaced", ".c.replaced"}) fs::create_directory(folder / name);
  toy::FailingFiles files(1);
  const auto problems =
      etude::recover_replaced(files, std::string(folder), [](const fs::path&) { return true; });
  REQUIRE(problems.size() == 1);
  CHECK(contains(problems[0], ".replaced can't be written: No space left on device"));
  CHECK(fs::exists(folder / "a") + fs::exists(folder / "b") + fs::exists(folder / "c") == 2);
}

TEST_CASE("recover_replaced leaves other files alone, and accepts a missing folder") {
  const toy::Folder folder;
  toy::write_text(folder / ".a.replaced", "a file");
  fs::create_directory(folder / ".replaced");
  fs::create_directory(folder / "b.replaced");
  fs::create_directory(folder / ".theirs.replaced");
  fs::create_directory_symlink(folder / "b.replaced", folder / ".c.replaced");
  const auto recover_in = [](const fs::path& parent) {
    return etude::recover_replaced(etude::default_file_system(), parent,
                                   [](const fs::path& path) { return path.filename() != "theirs"; });
  };
  CHECK(recover_in(std::string(folder)).empty());
  for (const auto* name : {".a.replaced", ".replaced", "b.replaced", ".theirs.replaced", ".c.replaced"}) {
    CAPTURE(name);
    CHECK(fs::exists(folder / name));
  }
  CHECK(recover_in(folder / "missing").empty());
}

TEST_CASE("a partial folder counts as abandoned only once its writer is gone") {
  const Place place;
  CHECK_FALSE(etude::is_abandoned(place.partial));
  {
    etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
    CHECK_FALSE(etude::is_abandoned(place.partial));
    CHECK_FALSE(etude::remove_abandoned(etude::default_file_system(), place.partial));
    CHECK(contains(
        fault_of([&] { etude::FolderWriter(etude::default_file_system(), place.target, place.partial); }),
        "another writer is active there"));
    writer.write_text("a", "x");
    CHECK(toy::read_text(place.partial / "a") == "x");
  }
  const auto child = fork();
  if (child == 0) {
    etude::FolderWriter writer(etude::default_file_system(), place.target, place.partial);
    writer.write_text("a", "x");
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(fs::exists(place.partial / "a"));
  CHECK(etude::is_abandoned(place.partial));
  place.write("next");
  CHECK(place.read() == "next");
  CHECK(place.names() == std::set<std::string>{"checkpoint-10"});
}

#ifdef __linux__
// Only root can create another user's folder.
TEST_CASE("a partial folder whose writer may be alive is left alone" * doctest::skip(::geteuid() != 0)) {
  std::thread([] {
    const Place place;
    fs::create_directory(place.partial);
    toy::write_text(place.partial / "file", "theirs");
    REQUIRE(::chmod(place.partial.c_str(), 0700) == 0);
    REQUIRE(::chown(std::string(place.folder).c_str(), 65534, 65534) == 0);
    ::setfsuid(65534);  // for this thread only
    CHECK((etude::detail::FolderLock(place.partial).state() == etude::detail::LockState::unknown));
    place.write("mine");
    CHECK(place.read() == "mine");
    ::setfsuid(0);
    CHECK(toy::read_text(place.partial / "file") == "theirs");
    CHECK(place.names() == std::set<std::string>{"checkpoint-10", ".checkpoint-10.partial"});
  }).join();
}
#endif

TEST_CASE("every flipped bit and every truncation of a file is detected, and the file named") {
  const Place place;
  place.write("some-text-of-a-state");
  for (const auto* name : {"state.json", "tokenizer/vocab.json", "etude_manifest.json"}) {
    const auto path = place.target / name;
    const auto text = toy::read_text(path);
    const auto refused = [&](const std::string& damaged) {
      toy::write_text(path, damaged);
      const auto fault = place.read();
      CHECK(fault.starts_with(path.string()));
    };
    for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
      auto damaged = text;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      CAPTURE(bit);
      refused(damaged);
    }
    for (std::size_t size = 0; size < text.size(); ++size) refused(text.substr(0, size));
    refused(text + "x");
    fs::remove(path);
    CHECK(place.read() == path.string() + " can't be read: No such file or directory");
    toy::write_text(path, text);
  }
  CHECK(place.read() == "some-text-of-a-state");
}

TEST_CASE("a reader names the damaged file") {
  const Place place;
  place.write("abc");
  toy::write_text(place.target / "state.json", "abd");
  etude::FolderReader reader(place.target);
  CHECK(fault_of([&] { reader.map("state.json"); }) ==
        (place.target / "state.json").string() +
            " is damaged: its checksum is ec4af3fc0b1f44fe6b4467b443c76228, but the manifest lists "
            "06b05ab6733a618578af5f94892f3950");
  toy::write_text(place.target / "state.json", "abcd");
  CHECK(fault_of([&] { reader.text("state.json"); }) ==
        (place.target / "state.json").string() + " is damaged: it has 4 bytes, but the manifest lists 3");
  CHECK(reader.text("tokenizer/vocab.json") == "abcabc");
  toy::write_text(place.target / "extra", "x");
  CHECK_FALSE(reader.has("extra"));
  CHECK(fault_of([&] { reader.map("extra"); }) ==
        (place.target / "extra").string() + ": the manifest doesn't list it");
}

TEST_CASE("each mapping has the file's bytes, whatever was written to another") {
  const Place place;
  place.write("abc");
  etude::FolderReader reader(place.target);
  const auto first = reader.map("state.json");
  first->bytes()[0] = std::byte{'X'};
  CHECK(reader.map("state.json")->text() == "abc");
  CHECK(first->text() == "Xbc");
}

TEST_CASE("a file that was replaced by a link is refused") {
  const Place place;
  place.write("abc");
  fs::rename(place.target / "state.json", place.folder / "elsewhere");
  fs::create_symlink(place.folder / "elsewhere", place.target / "state.json");
  CHECK(place.read() == (place.target / "state.json").string() + " can't be read: it is a symbolic link");
}

TEST_CASE("a link to a whole checkpoint is followed") {
  const Place place;
  place.write("abc");
  fs::create_directory_symlink(place.target, place.folder / "latest");
  etude::FolderReader reader(place.folder / "latest");
  reader.verify();
  CHECK(reader.text("state.json") == "abc");
}

TEST_CASE("another program's folder is read without a manifest if that is allowed") {
  const toy::Folder folder;
  toy::write_text(folder / "config.json", "{}");
  fs::create_symlink(folder / "config.json", folder / "link.json");
  CHECK(contains(fault_of([&] { etude::FolderReader(std::string(folder)); }), "etude_manifest.json"));
  etude::FolderReader reader(std::string(folder), false);
  CHECK_FALSE(reader.manifest());
  CHECK(reader.has("config.json"));
  CHECK(reader.has("link.json"));
  CHECK_FALSE(reader.has("model.safetensors"));
  CHECK_FALSE(reader.has("../" + fs::path(std::string(folder)).filename().string() + "/config.json"));
  CHECK(reader.text("config.json") == "{}");
  CHECK(reader.text("link.json") == "{}");
  CHECK(contains(fault_of([&] { reader.text("missing"); }), "missing can't be read: No such file"));
  reader.verify();
  toy::write_text(folder / "etude_manifest.json", "{}");
  CHECK(contains(fault_of([&] { etude::FolderReader(std::string(folder), false); }), "checksum"));
}

TEST_CASE("anything but a folder isn't a checkpoint") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  CHECK(fault_of([&] { etude::FolderReader(folder / "file"); }) ==
        (folder / "file").string() + " can't be read: it isn't a folder");
  CHECK(fault_of([&] { etude::FolderReader(folder / "missing"); }) ==
        (folder / "missing").string() + " can't be read: it isn't a folder");
}

TEST_CASE("paths may end with a slash") {
  const Place place;
  {
    etude::FolderWriter writer(etude::default_file_system(), place.target / "", place.partial / "");
    writer.write_text("a", "x");
    writer.commit({});
  }
  CHECK(etude::FolderReader(place.target / "").text("a") == "x");
  CHECK(place.names() == std::set<std::string>{"checkpoint-10"});
}

}  // namespace io_folder_test
