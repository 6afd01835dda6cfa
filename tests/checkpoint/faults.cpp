#include "common/full_run.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "common/folder.hpp"
#include "common/quick_files.hpp"
#include "etude/base/error.hpp"
#include "etude/callbacks/early_stopping.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/io/folder.hpp"

#ifdef __linux__
#include <fmt/format.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#endif

namespace checkpoint_faults_test {

namespace fs = std::filesystem;

// A callback that records the reported checkpoints and the weights of each step, and may act at a step.
struct Witness {
  std::set<std::int64_t> saved = {};
  std::map<std::int64_t, std::string> weights_at = {};
  std::function<void(std::int64_t)> at_step = {};

  void on(const etude::StepEnd& e) {
    std::string text;
    for (const auto& [name, tensor] : e.model.state_dict())
      text += fmt::format("{} {}\n", name, toy::checksum_of(tensor));
    weights_at[e.state.global_step] = text;
    if (at_step) at_step(e.state.global_step);
  }
  void on(const etude::Save& e) { saved.insert(*etude::checkpoint_step(e.checkpoint)); }
};

using Trainer = etude::Trainer<toy::Quiet, Witness, toy::Diary, etude::EarlyStoppingCallback>;

struct Run {
  std::mt19937 engine;
  etude::TrainerOptions options;
  std::unique_ptr<Trainer> trainer;

  Run(const std::string& folder, std::shared_ptr<etude::FileSystem> files, bool async = false,
      std::function<void(std::int64_t)> at_step = {}) {
    options = toy::full_options(folder, engine);
    options.args.num_train_epochs = 1;
    options.args.save_steps = 2;
    options.args.save_total_limit = 2;
    options.args.save_async = async;
    options.file_system = std::move(files);
    trainer = std::make_unique<Trainer>(options, Witness{.at_step = std::move(at_step)},
                                        toy::Diary{.engine = &engine},
                                        etude::EarlyStoppingCallback{.early_stopping_patience = 5});
  }
  void train() { trainer->train({.resume_from_checkpoint = etude::if_any}); }
  // Trains, and returns the error's message, or "" if there was no error.
  std::string error() {
    try {
      train();
      return "";
    } catch (const etude::CheckpointError& error) {
      return error.what();
    }
  }
  const Witness& witness() { return trainer->callback<Witness>(); }
};

struct Unbroken {
  std::string outcome;
  std::map<std::int64_t, std::string> weights_at;
};

const Unbroken& unbroken() {
  static const auto result = [] {
    const toy::Folder folder;
    Run run(folder, std::make_shared<toy::QuickFiles>());
    run.train();
    CHECK(run.witness().saved == std::set<std::int64_t>{2, 4, 6});
    return Unbroken{toy::outcome(*run.trainer), run.witness().weights_at};
  }();
  return result;
}

// Checks that every folder named like a checkpoint is complete, and that the last two that were reported
// exist.
void check_folder(const std::string& folder, const std::set<std::int64_t>& saved) {
  std::set<std::int64_t> there;
  for (const auto& path : etude::checkpoint_folders(folder)) {
    CAPTURE(path.string());
    etude::FolderReader reader(path);
    CHECK_NOTHROW(reader.verify());
    there.insert(*etude::checkpoint_step(path));
  }
  if (saved.empty()) return;
  CHECK(there.contains(*saved.rbegin()));
  if (saved.size() > 1) CHECK(there.contains(*std::next(saved.rbegin())));
}

// Waits until the background thread has written the file.
void wait_for(const fs::path& path) {
  for (int i = 0; !fs::exists(path); ++i) {
    REQUIRE(i < 10000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Checks that on a working disk, the same command ends with the result of the uninterrupted run.
void check_resumed(const std::string& folder) {
  Run run(folder, std::make_shared<toy::QuickFiles>());
  run.train();
  CHECK(toy::outcome(*run.trainer) == unbroken().outcome);
  for (const auto& entry : fs::directory_iterator(folder))
    CHECK_FALSE(entry.path().filename().string().starts_with('.'));
  CHECK(etude::checkpoint_folders(folder).size() == 2);
}

// Checks that the training ended with the weights of its last step.
void check_weights(Run& run) {
  const auto step = run.trainer->state().global_step;
  if (step == 0) return;
  CHECK(toy::weights(*run.trainer) == unbroken().weights_at.at(step));
}

TEST_CASE("whichever disk operation fails, the run reports it, keeps its checkpoints and resumes later") {
  std::vector<std::string> operations;
  {
    const toy::Folder folder;
    Run run(folder, std::make_shared<toy::QuickFiles>([&](std::string_view operation, const fs::path& path) {
              operations.push_back(fmt::format("{} {}", operation, path.filename().string()));
            }));
    run.train();
  }
  REQUIRE(operations.size() > 100);
  for (const bool for_good : {false, true})
    for (const bool async : {false, true}) {
      std::size_t thrown = 0, finished = 0;
      for (std::size_t n = 1; n <= operations.size(); ++n) {
        CAPTURE(async);
        CAPTURE(for_good);
        CAPTURE(n);
        CAPTURE(operations[n - 1]);
        const toy::Folder folder;
        std::size_t count = 0;
        std::vector<fs::path> failed;
        const auto files = std::make_shared<toy::QuickFiles>([&](std::string_view, const fs::path& path) {
          if (++count < n || (count > n && !for_good)) return;
          failed.push_back(path);
          throw etude::detail::file_error(path, "can't be written", ENOSPC);
        });
        Run run(folder, files, async);
        const auto error = run.error();
        if (error.empty()) {
          // The training continues only after failures to remove an old checkpoint or to update `latest`.
          CHECK((operations[n - 1].ends_with("checkpoint-2") ||
                 operations[n - 1].ends_with("checkpoint-2.deleted") ||
                 operations[n - 1].find(" .latest.") != std::string::npos ||
                 operations[n - 2].starts_with("rename .latest.")));
          ++finished;
        } else {
          CHECK(std::ranges::any_of(
              failed, [&](const fs::path& path) { return error.find(path.string()) != std::string::npos; }));
          CHECK(error.find("No space left on device") != std::string::npos);
          ++thrown;
          check_weights(run);
        }
        check_folder(folder, run.witness().saved);
        check_resumed(folder);
      }
      CHECK(thrown > operations.size() * 8 / 10);
      CHECK(finished >= (for_good ? 0 : 11));
    }
}

TEST_CASE("with save_on_exception a failed write is tried once more") {
  const toy::Folder folder;
  bool failed = false;
  Run run(folder, std::make_shared<toy::QuickFiles>([&](std::string_view operation, const fs::path& path) {
            if (failed || operation != "rename" || path.string().find("checkpoint-4") == std::string::npos)
              return;
            failed = true;
            throw etude::detail::file_error(path, "can't be written", EIO);
          }));
  run.options.args.save_on_exception = true;
  run.trainer = std::make_unique<Trainer>(run.options, Witness{}, toy::Diary{.engine = &run.engine},
                                          etude::EarlyStoppingCallback{.early_stopping_patience = 5});
  CHECK(run.error().find("Input/output error") != std::string::npos);
  CHECK((run.witness().saved == std::set<std::int64_t>{2, 4}));
  check_resumed(folder);
}

TEST_CASE("an output folder that is removed during a training is created again") {
  for (const bool async : {false, true}) {
    const toy::Folder folder;
    const std::string output = folder / "out";
    Run run(output, std::make_shared<toy::QuickFiles>(), async, [&](std::int64_t step) {
      if (step != 3) return;
      wait_for(output + "/latest");
      fs::remove_all(output);
    });
    run.train();
    CHECK(toy::outcome(*run.trainer) == unbroken().outcome);
    CHECK(etude::checkpoint_folders(output).size() == 2);
    check_folder(output, {4, 6});
  }
}

TEST_CASE("a folder that is removed while a checkpoint is written to it costs only this checkpoint") {
  const toy::Folder folder;
  const std::string output = folder / "out";
  int writes = 0;
  Run run(
      output, std::make_shared<toy::QuickFiles>([&](std::string_view operation, const fs::path& path) {
        if (operation == "create" && path.string().find("checkpoint-4") != std::string::npos && ++writes == 4)
          fs::remove_all(output);
      }));
  const auto error = run.error();
  CHECK(error.find("checkpoint-4") != std::string::npos);
  CHECK(error.find("No such file or directory") != std::string::npos);
  check_weights(run);
  check_resumed(output);
}

TEST_CASE("an output_dir that is a file, or under one, is reported") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "mine");
  for (const std::string output : {folder / "file", folder / "file" / "out"}) {
    Run run(output, nullptr);
    const auto error = run.error();
    CHECK(error.find((folder / "file").string()) != std::string::npos);
    CHECK(error.find("Not a directory") != std::string::npos);
    check_weights(run);
    CHECK(toy::read_text(folder / "file") == "mine");
  }
}

#ifdef __linux__

// Runs `act` in a thread with private mounts.
template <class Act>
void with_own_mounts(Act act) {
  std::async(std::launch::async, [&] {
    if (::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
      act();
    else
      MESSAGE("skipped: this user can't mount");
  }).get();
}

struct Disk {
  toy::Folder folder;
  std::string path = folder / "disk";

  explicit Disk(const char* size) {
    fs::create_directory(path);
    REQUIRE(::mount("tmpfs", path.c_str(), "tmpfs", 0, size) == 0);
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk() {
    while (::umount2(path.c_str(), MNT_DETACH) == 0) {
    }
  }
};

TEST_CASE("a full disk is reported, and the run resumes once there is space") {
  with_own_mounts([] {
    for (const bool async : {false, true}) {
      const Disk mounted("size=256k");
      const std::string& disk = mounted.path;
      // Leaves room for only a part of the next checkpoint.
      std::uintmax_t room = 0;
      const auto fill = [&](std::int64_t step) {
        if (step != 3) return;
        wait_for(disk + "/out/latest");
        room = fs::space(disk).available;
        REQUIRE(room > 20480);
        toy::write_text(fs::path(disk) / "ballast", std::string(room - 20480, 'x'));
        room = fs::space(disk).available;
      };
      Run run(disk + "/out", nullptr, async, fill);
      const auto error = run.error();
      CHECK(error.find(disk + "/out/") == 0);
      CHECK(error.find("No space left on device") != std::string::npos);
      check_weights(run);
      CHECK(run.witness().saved == std::set<std::int64_t>{2});
      check_folder(disk + "/out", {2});
      CHECK(fs::space(disk).available == room);  // nothing uncommitted is left
      fs::remove(fs::path(disk) / "ballast");
      check_resumed(disk + "/out");
    }
  });
}

TEST_CASE("a disk that becomes read-only is reported, and the run resumes once it is writable") {
  with_own_mounts([] {
    const Disk mounted("size=1m");
    const std::string& disk = mounted.path;
    Run run(disk + "/out", nullptr, false, [&](std::int64_t step) {
      if (step != 3) return;
      REQUIRE(::mount(disk.c_str(), disk.c_str(), nullptr, MS_BIND, nullptr) == 0);
      REQUIRE(::mount("none", disk.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0);
    });
    const auto error = run.error();
    CHECK(error.find(disk + "/out/") == 0);
    CHECK(error.find("Read-only file system") != std::string::npos);
    check_weights(run);
    check_folder(disk + "/out", {2});
    REQUIRE(::umount2(disk.c_str(), MNT_DETACH) == 0);
    check_resumed(disk + "/out");
  });
}

TEST_CASE("a missing write permission is reported, and the run resumes once it is granted") {
  std::async(std::launch::async, [] {
    const toy::Folder folder;
    const std::string output = folder / "out";
    fs::create_directory(output);
    if (::geteuid() == 0) {  // root may do everything, so this thread accesses files as another user
      REQUIRE(::chown(std::string(folder).c_str(), 65534, 65534) == 0);
      REQUIRE(::chown(output.c_str(), 65534, 65534) == 0);
      ::setfsuid(65534);
      ::setfsgid(65534);
    }
    Run run(output, nullptr, false, [&](std::int64_t step) {
      if (step == 3) REQUIRE(::chmod(output.c_str(), 0555) == 0);
    });
    const auto error = run.error();
    CHECK(error.find(output + "/") == 0);
    CHECK(error.find("Permission denied") != std::string::npos);
    check_weights(run);
    check_folder(output, {2});
    REQUIRE(::chmod(output.c_str(), 0755) == 0);
    check_resumed(output);
    if (::geteuid() == 0) {
      ::setfsuid(0);
      ::setfsgid(0);
    }
  }).get();
}

#endif

}  // namespace checkpoint_faults_test
