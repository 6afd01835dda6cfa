#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/io/file_system.hpp"

namespace etude {

class FolderWriter;
struct Manifest;

namespace detail {
class LockFile;

/// The greater of two is that of the newer checkpoint: its serial number tells, and where both have the
/// largest one, which a damaged or hostile manifest may have brought, the time at which its manifest was
/// written and its step.
using CheckpointAge = std::tuple<std::int64_t, std::filesystem::file_time_type, std::int64_t>;
}  // namespace detail

/// The step of a folder called "checkpoint-STEP".
std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& folder);

/// The folders in `output_dir` that are called as checkpoints are, by step.
std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& output_dir);

/// The newest checkpoint of `output_dir` by the number in its name, whole or not, as Hugging Face's function
/// of this name.
std::optional<std::filesystem::path> get_last_checkpoint(const std::filesystem::path& output_dir);

/// The checkpoints of one run in `output_dir`: where they are written, which is the newest, and which may go.
/// A run is what begins with a `train()` and goes on with those that resume it. Folders of other runs and
/// programs are never changed nor removed; one whose name is needed gets another.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path output_dir, std::shared_ptr<FileSystem> files = nullptr);
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;
  ~CheckpointStore();

  const std::filesystem::path& output_dir() const { return output_dir_; }
  FileSystem& files() { return *files_; }
  std::filesystem::path folder(std::int64_t step) const;
  /// Whether the run has a checkpoint of this step.
  bool has(std::int64_t step) const;
  /// Whether this process has written a checkpoint of the run.
  bool has_written() const { return has_written_; }

  /// Takes `output_dir`, which is made if it isn't there, for this store alone, until `unlock` or the end of
  /// the process. False if another has it, here or in another process; where that can't be known, on a file
  /// system without locks, true. Throws CheckpointError where `output_dir` can't be made.
  [[nodiscard]] bool lock();
  void unlock();

  /// Puts right what a crash has left: old checkpoints whose replacement was not finished are back,
  /// unfinished ones are removed, and what was to become `latest` or `trainer_state.json`. No other store may
  /// be at work in `output_dir` (see `lock`). Returns what couldn't be done, in words; throws CheckpointError
  /// where `output_dir` can't be read.
  std::vector<std::string> clean();

  /// The checkpoints to resume from, the newest first, as far as their manifests say; `on_fault(folder, why)`
  /// hears of each folder that can't be one.
  std::vector<std::filesystem::path> candidates(
      const std::function<void(const std::filesystem::path& folder, std::string_view why)>& on_fault) const;

  /// Begins a run, or goes on with the one that `manifest` is of.
  void begin();
  void begin(const std::optional<Manifest>& manifest);

  /// A folder to write the checkpoint of `step` into. Where `output_dir` was removed, and the lock with it,
  /// it is locked again; throws CheckpointError if another has it by then.
  std::unique_ptr<FolderWriter> create(std::int64_t step);

  /// Puts it in its place, points `latest` at it, and removes what `limit` leaves no room for, or was kept
  /// for being the best only: oldest first, never `best` nor the newest. Throws CheckpointError where the
  /// checkpoint couldn't be written; what else couldn't be done is returned, in words.
  [[nodiscard]] std::optional<std::string> commit(FolderWriter& writer, Manifest facts,
                                                  std::optional<std::int64_t> limit,
                                                  const std::optional<std::filesystem::path>& best);

  /// Does what a crash has left to do after the checkpoint that the run goes on from, if that is its newest:
  /// `latest` points at it, and what the limit leaves no room for is removed, as by `commit`.
  [[nodiscard]] std::optional<std::string> finish_commit(const std::filesystem::path& checkpoint,
                                                         std::optional<std::int64_t> limit,
                                                         const std::optional<std::filesystem::path>& best);

 private:
  struct Entry {
    std::filesystem::path path;
    detail::CheckpointAge age;
    std::string reason;
  };

  /// What has the name of a checkpoint of ours and isn't one gets another: "checkpoint-5.RUN", or
  /// "checkpoint-5.other".
  void move_aside(const std::filesystem::path& target);
  // The rest of a commit, of which nothing undoes the checkpoint.
  std::optional<std::string> settle(const std::filesystem::path& newest, std::optional<std::int64_t> limit,
                                    const std::optional<std::filesystem::path>& best);
  void point_at(const std::filesystem::path& target, std::vector<std::string>& problems);
  void rotate(std::optional<std::int64_t> limit, const std::optional<std::filesystem::path>& best,
              std::vector<std::string>& problems);
  void remove(const std::filesystem::path& path);

  std::filesystem::path output_dir_;
  std::shared_ptr<FileSystem> files_;
  std::string run_;
  std::int64_t serial_ = 0;
  std::vector<Entry> entries_;  // of this run, oldest first
  bool has_written_ = false;
  std::unique_ptr<detail::LockFile> lock_;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/checkpoint/impl/store.ipp"
#endif
