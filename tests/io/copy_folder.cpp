#include "etude/io/copy_folder.hpp"

#include <doctest/doctest.h>

#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace io_copy_folder_test {

namespace fs = std::filesystem;

/// Makes a folder that looks like a checkpoint, with a file in a subfolder.
fs::path checkpoint(const fs::path& path, const std::string& text) {
  fs::create_directories(path / "tokenizer");
  toy::write_text(path / "trainer_state.json", text);
  toy::write_text(path / "tokenizer" / "vocab.json", text);
  return path;
}

TEST_CASE("a copy has everything in the checkpoint, and outlives it") {
  const toy::Folder folder;
  const auto from = checkpoint(folder / "checkpoint-1", "one");
  auto& files = etude::default_file_system();
  etude::copy_checkpoint(files, from, folder / "deep" / "copy");
  etude::remove_checkpoint(files, from);
  CHECK(!fs::exists(from));
  CHECK(toy::read_text(folder / "deep" / "copy" / "trainer_state.json") == "one");
  CHECK(toy::read_text(folder / "deep" / "copy" / "tokenizer" / "vocab.json") == "one");
  CHECK(std::distance(fs::directory_iterator(folder / "deep"), fs::directory_iterator()) == 1);
}

/// A file system that can't exchange two folders.
struct WithoutExchange : etude::FileSystem {
  bool exchange(const fs::path&, const fs::path&) override { return false; }
};

TEST_CASE("an existing checkpoint is replaced completely") {
  WithoutExchange without;
  for (auto* files : {&etude::default_file_system(), static_cast<etude::FileSystem*>(&without)}) {
    const toy::Folder folder;
    const auto from = checkpoint(folder / "checkpoint-2", "two");
    const auto to = checkpoint(folder / "copy", "one");
    toy::write_text(to / "more.json", "one");
    etude::copy_checkpoint(*files, from, to);
    CHECK(toy::read_text(to / "trainer_state.json") == "two");
    CHECK(!fs::exists(to / "more.json"));
    CHECK(toy::read_text(from / "trainer_state.json") == "two");
    CHECK(std::distance(fs::directory_iterator(folder / "."), fs::directory_iterator()) == 2);
  }
}

TEST_CASE("a copy to itself changes nothing") {
  const toy::Folder folder;
  const auto from = checkpoint(folder / "checkpoint-1", "one");
  fs::create_directory_symlink(from, folder / "latest");
  etude::copy_checkpoint(etude::default_file_system(), folder / "latest", from);
  CHECK(toy::read_text(from / "trainer_state.json") == "one");
}

TEST_CASE("anything but a checkpoint is neither replaced nor removed") {
  const toy::Folder folder;
  const auto from = checkpoint(folder / "checkpoint-1", "one");
  fs::create_directories(folder / "thesis");
  toy::write_text(folder / "thesis" / "chapter.txt", "years of work");
  toy::write_text(folder / "file", "of somebody");
  auto& files = etude::default_file_system();
  for (const auto* name : {"thesis", "file"}) {
    CHECK_THROWS_AS(etude::copy_checkpoint(files, from, folder / name), etude::CheckpointError);
    CHECK_THROWS_AS(etude::remove_checkpoint(files, folder / name), etude::CheckpointError);
  }
  CHECK(toy::read_text(folder / "thesis" / "chapter.txt") == "years of work");
  CHECK(toy::read_text(folder / "file") == "of somebody");
  etude::remove_checkpoint(files, folder / "never was");
}

TEST_CASE("if a copy fails, the existing one stays") {
  const toy::Folder folder;
  const auto to = checkpoint(folder / "copy", "one");
  auto& files = etude::default_file_system();
  CHECK_THROWS_AS(etude::copy_checkpoint(files, folder / "gone", to), etude::CheckpointError);
  CHECK(toy::read_text(to / "trainer_state.json") == "one");

  struct Failing : etude::FileSystem {
    void sync(const fs::path& path) override {
      if (path.filename().string().ends_with(".partial")) throw etude::CheckpointError("the disk is full");
      FileSystem::sync(path);
    }
  } failing;
  const auto from = checkpoint(folder / "checkpoint-2", "two");
  CHECK_THROWS_WITH(etude::copy_checkpoint(failing, from, to), "the disk is full");
  CHECK(toy::read_text(to / "trainer_state.json") == "one");
}

}  // namespace io_copy_folder_test
