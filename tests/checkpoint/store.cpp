#include "etude/checkpoint/store.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/fsuid.h>
#endif

#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/manifest.hpp"

namespace checkpoint_store_test {

namespace fs = std::filesystem;
using etude::CheckpointStore;

// A disk on which paths that contain one of these words can't be removed, renamed or linked.
class StubbornFiles : public etude::FileSystem {
 public:
  explicit StubbornFiles(std::vector<std::string> words) : words_(std::move(words)) {}

  void rename(const fs::path& from, const fs::path& to) override {
    check(from);
    FileSystem::rename(from, to);
  }
  void remove_all(const fs::path& path) override {
    check(path);
    FileSystem::remove_all(path);
  }
  bool create_symlink(const fs::path& target, const fs::path& link) override {
    check(link);
    return FileSystem::create_symlink(target, link);
  }

 private:
  void check(const fs::path& path) const {
    for (const auto& word : words_)
      if (path.filename().string().find(word) != std::string::npos)
        throw etude::detail::file_error(path, "can't be changed", EIO);
  }

  std::vector<std::string> words_;
};

std::optional<std::string> write(CheckpointStore& store, std::int64_t step,
                                 std::optional<std::int64_t> limit = {},
                                 const std::optional<fs::path>& best = {}) {
  const auto writer = store.create(step);
  writer->write_text("trainer_state.json", "{}");
  return store.commit(*writer, {.global_step = step}, limit, best);
}

std::set<std::string> names(const fs::path& folder) {
  std::set<std::string> result;
  for (const auto& entry : fs::directory_iterator(folder)) result.insert(entry.path().filename());
  return result;
}

TEST_CASE("an output folder is locked by one store, until it is unlocked") {
  const toy::Folder folder;
  const auto output = folder / "made/for/it";
  CheckpointStore first(output), second(output);
  CHECK(first.lock());
  CHECK(first.lock());
  CHECK_FALSE(second.lock());
  first.unlock();
  CHECK(names(output).empty());
  CHECK(second.lock());
  CHECK_FALSE(first.lock());
  toy::write_text(folder / "file", "");
  const auto file = (folder / "file").string();
  CHECK_THROWS_WITH_AS((void)CheckpointStore(file).lock(),
                       ("output_dir is " + file + ": " + file + " can't be created: Not a directory").c_str(),
                       etude::CheckpointError);
}

TEST_CASE("an output folder that is removed is locked again by the next checkpoint, unless another has it") {
  const toy::Folder folder;
  const auto output = folder / "out";
  CheckpointStore first(output), second(output);
  REQUIRE(first.lock());
  fs::remove_all(output);
  first.create(1);
  CHECK_FALSE(second.lock());
  fs::remove_all(output);
  CHECK(second.lock());
  CHECK_THROWS_WITH_AS(first.create(2),
                       ("output_dir is " + output.string() +
                        ": it was removed during the training, and another training is writing its "
                        "checkpoints there")
                           .c_str(),
                       etude::CheckpointError);
  CHECK_NOTHROW(second.create(1));
}

#ifdef __linux__
TEST_CASE("an unwritable output folder is refused before training") {
  const toy::Folder folder;
  std::thread([&] {
    const auto output = folder / "out";
    fs::create_directory(output);
    REQUIRE(::chmod(output.c_str(), 0555) == 0);
    const bool is_root = ::geteuid() == 0;
    if (is_root) {
      REQUIRE(::chown(std::string(folder).c_str(), 65534, 65534) == 0);
      ::setfsuid(65534);  // for this thread only
    }
    CHECK_THROWS_WITH_AS(
        (void)CheckpointStore(output).lock(),
        ("output_dir is " + output.string() + ": must be a folder that can be written to: Permission denied")
            .c_str(),
        etude::CheckpointError);
    if (is_root) ::setfsuid(0);
  }).join();
}
#endif

TEST_CASE("the lock of an ended process is free, and its file is removed with the next") {
  const toy::Folder folder;
  CheckpointStore store{std::string(folder)};
  const auto child = fork();
  if (child == 0) _exit(store.lock() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK(names(std::string(folder)).size() == 1);
  CHECK(store.lock());
  store.unlock();
  CHECK(names(std::string(folder)).empty());
}

TEST_CASE("a crash's partial checkpoints are removed, and nothing else") {
  const toy::Folder folder;
  const std::set<std::string> others = {
      ".backup.replaced",  ".checkpoint-best.partial", ".checkpoint-.deleted", ".checkpoint-5",
      ".checkpoint-5.txt", "checkpoint-6.partial",     ".mine.deleted",        ".latest.d"};
  for (const auto& name : others) fs::create_directory(folder / name);
  for (const auto* name : {".checkpoint-5.0123.partial", ".checkpoint-5.partial", ".checkpoint-7.deleted",
                           ".checkpoint-8.replaced", ".checkpoint-9.replaced", "checkpoint-9"})
    fs::create_directory(folder / name);
  fs::create_directory_symlink("checkpoint-9", folder / ".latest.0123");
  toy::write_text(folder / ".trainer_state.json.0123.partial", "{");
  CHECK(CheckpointStore(std::string(folder)).clean().empty());
  auto expected = others;
  expected.insert({"checkpoint-8", "checkpoint-9"});
  CHECK(names(std::string(folder)) == expected);
}

TEST_CASE("leftovers that can't be removed are reported, and the others are removed") {
  const toy::Folder folder;
  for (const auto* name : {".checkpoint-1.deleted", ".checkpoint-2.deleted", ".checkpoint-3.partial",
                           ".checkpoint-4.replaced", "checkpoint-4"})
    fs::create_directory(folder / name);
  fs::create_symlink("x", folder / ".latest.5");
  CheckpointStore store(std::string(folder),
                        std::make_shared<StubbornFiles>(std::vector<std::string>{"-2", "-4", ".latest"}));
  const auto problems = store.clean();
  REQUIRE(problems.size() == 3);
  CHECK(problems[0] ==
        (folder / ".checkpoint-4.replaced").string() + " can't be changed: Input/output error");
  CHECK(problems[1] == (folder / ".checkpoint-2.deleted").string() + " can't be changed: Input/output error");
  CHECK(problems[2] == (folder / ".latest.5").string() + " can't be changed: Input/output error");
  CHECK(names(std::string(folder)) == std::set<std::string>{".checkpoint-2.deleted", ".checkpoint-4.replaced",
                                                            ".latest.5", "checkpoint-4"});
}

TEST_CASE("an old checkpoint that can't be removed doesn't keep the others from being removed") {
  const toy::Folder folder;
  CheckpointStore sound{std::string(folder)};
  sound.begin();
  for (const auto step : {1, 2, 3}) CHECK_FALSE(write(sound, step));
  CheckpointStore store(std::string(folder),
                        std::make_shared<StubbornFiles>(std::vector<std::string>{"checkpoint-1"}));
  store.begin(etude::read_manifest(folder / "checkpoint-3"));
  CHECK(write(store, 4, 1).value_or("") ==
        "an old checkpoint couldn't be removed: " + (folder / ".checkpoint-1.deleted").string() +
            " can't be changed: Input/output error");
  CHECK(names(std::string(folder)) == std::set<std::string>{"checkpoint-1", "checkpoint-4", "latest"});
}

TEST_CASE("beyond the limit the oldest is removed, but never the best or the newest") {
  const toy::Folder folder;
  CheckpointStore store{std::string(folder)};
  store.begin();
  const auto best = folder / "checkpoint-1";
  for (const auto step : {1, 2, 3}) CHECK_FALSE(write(store, step, 2, best));
  CHECK(names(std::string(folder)) == std::set<std::string>{"checkpoint-1", "checkpoint-3", "latest"});
  CHECK_FALSE(write(store, 4, 1, best));
  CHECK(names(std::string(folder)) == std::set<std::string>{"checkpoint-1", "checkpoint-4", "latest"});
  CHECK_FALSE(write(store, 5, 1));
  CHECK(names(std::string(folder)) == std::set<std::string>{"checkpoint-5", "latest"});
}

TEST_CASE("latest points at the newest, and a real folder of that name stays") {
  const toy::Folder folder;
  CheckpointStore store{std::string(folder)};
  store.begin();
  CHECK_FALSE(write(store, 1));
  CHECK_FALSE(write(store, 2));
  CHECK(fs::read_symlink(folder / "latest") == "checkpoint-2");
  fs::remove(folder / "latest");
  fs::create_directory(folder / "latest");
  toy::write_text(folder / "latest/mine", "mine");
  CHECK(write(store, 3) == (folder / "latest").string() + " stays as it is: it isn't a symbolic link");
  CHECK(toy::read_text(folder / "latest/mine") == "mine");
  CHECK(store.has(3));
}

TEST_CASE("a failure to set latest is reported, and the checkpoint exists and counts") {
  const toy::Folder folder;
  CheckpointStore store(std::string(folder),
                        std::make_shared<StubbornFiles>(std::vector<std::string>{".latest."}));
  store.begin();
  const auto problem = write(store, 1);
  REQUIRE(problem);
  CHECK(problem->starts_with((folder / "latest").string() + " may not point at checkpoint-1: "));
  CHECK(problem->ends_with("can't be changed: Input/output error"));
  CHECK(store.has(1));
  CHECK(store.has_written());
}

TEST_CASE("a copy of a checkpoint isn't counted or removed, and is moved aside") {
  const toy::Folder folder;
  CheckpointStore store{std::string(folder)};
  store.begin();
  CHECK_FALSE(write(store, 7));
  for (const auto* name : {"checkpoint-1007", "checkpoint-007"})
    fs::copy(folder / "checkpoint-7", folder / name, fs::copy_options::recursive);
  const auto manifest = etude::read_manifest(folder / "checkpoint-7");
  CheckpointStore resumed{std::string(folder)};
  resumed.begin(manifest);
  CHECK(resumed.has(7));
  CHECK_FALSE(resumed.has(1007));
  CHECK_FALSE(write(resumed, 8, 1));
  CHECK_FALSE(write(resumed, 1007, 1));
  CHECK(names(std::string(folder)) == std::set<std::string>{"checkpoint-007", "checkpoint-1007", "latest",
                                                            "checkpoint-1007." + manifest.run});
  CHECK(etude::read_manifest(folder / "checkpoint-1007").global_step == 1007);
}

TEST_CASE("a manifest with the largest serial number leaves the checkpoints after it readable and newer") {
  const toy::Folder folder;
  CheckpointStore store{std::string(folder)};
  store.begin();
  CHECK_FALSE(write(store, 9));
  auto manifest = etude::read_manifest(folder / "checkpoint-9");
  const auto give_serial = [&](std::int64_t serial) {
    manifest.serial = serial;
    toy::write_text(folder / "checkpoint-9" / etude::manifest_file, etude::to_manifest_text(manifest));
  };
  const auto newest_first = [](CheckpointStore& of) {
    std::vector<std::string> result;
    for (const auto& path : of.candidates([](const auto&, auto) {})) result.push_back(path.filename());
    return result;
  };
  give_serial((std::int64_t{1} << 53) - 1);
  CheckpointStore resumed{std::string(folder)};
  resumed.begin(manifest);
  CHECK_FALSE(write(resumed, 10));
  CHECK_FALSE(write(resumed, 11));
  CHECK(etude::read_manifest(folder / "checkpoint-11").serial == (std::int64_t{1} << 53) - 1);
  CHECK(newest_first(resumed) == std::vector<std::string>{"checkpoint-11", "checkpoint-10", "checkpoint-9"});
  CheckpointStore again{std::string(folder)};
  again.begin(manifest);
  CHECK_FALSE(write(again, 12, 2));
  CHECK(newest_first(again) == std::vector<std::string>{"checkpoint-12", "checkpoint-11"});
}

TEST_CASE("a serial number without a manifest is ignored") {
  for (const auto serial :
       {std::int64_t{-1}, std::int64_t{1} << 53, std::numeric_limits<std::int64_t>::max()}) {
    const toy::Folder folder;
    CheckpointStore store{std::string(folder)};
    store.begin();
    CHECK_FALSE(write(store, 1));
    auto manifest = etude::read_manifest(folder / "checkpoint-1");
    manifest.serial = serial;
    toy::write_text(folder / "checkpoint-1" / etude::manifest_file, etude::to_manifest_text(manifest));
    CheckpointStore other{std::string(folder)};
    other.begin();
    CHECK_FALSE(write(other, 2));
    CHECK(etude::read_manifest(folder / "checkpoint-2").serial == 1);
  }
}

TEST_CASE("a commit is finished by any path to its folder") {
  const toy::Folder folder;
  CheckpointStore store{std::string(folder)};
  store.begin();
  CHECK_FALSE(write(store, 1));
  CHECK_FALSE(write(store, 2));
  fs::remove(folder / "latest");
  CheckpointStore resumed{std::string(folder)};
  resumed.begin(etude::read_manifest(folder / "checkpoint-2"));
  CHECK_FALSE(resumed.finish_commit(folder / "checkpoint-1", 1, {}));
  CHECK(fs::exists(folder / "checkpoint-1"));
  CHECK_FALSE(resumed.finish_commit(folder / "checkpoint-1/../checkpoint-2/", 1, {}));
  CHECK(names(std::string(folder)) == std::set<std::string>{"checkpoint-2", "latest"});
  CHECK(fs::read_symlink(folder / "latest") == "checkpoint-2");
}

}  // namespace checkpoint_store_test
