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

#include "etude/io/file_system.hpp"

namespace etude::inline v0 {

class FolderWriter;
struct Manifest;

namespace detail {
class LockFile;

/// A greater value means newer. The serial number decides. If both have the maximum, which a damaged or
/// hostile manifest may cause, the manifest's write time decides, then the step.
using CheckpointAge = std::tuple<std::int64_t, std::filesystem::file_time_type, std::int64_t>;
}  // namespace detail

/// The step of a folder named "checkpoint-STEP"; unset for other names.
std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& folder);

/// The folders in `output_dir` that are named like checkpoints, by step.
std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& output_dir);

/// The newest checkpoint of `output_dir` by the number in its name, complete or not, like Hugging Face's
/// function of this name.
std::optional<std::filesystem::path> get_last_checkpoint(const std::filesystem::path& output_dir);

/// Manages the checkpoints of one run in `output_dir`: where to write them, which one is the newest, and
/// which ones to remove. A run begins with a call of `train()` and includes the calls that resume it. Folders
/// of other runs and programs are never modified or removed; if the name of one is needed, it is renamed.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path output_dir, std::shared_ptr<FileSystem> files = nullptr);
  CheckpointStore(const CheckpointStore&) = delete;
  CheckpointStore& operator=(const CheckpointStore&) = delete;
  ~CheckpointStore();

  const std::filesystem::path& output_dir() const { return output_dir_; }
  FileSystem& files() { return *files_; }
  std::filesystem::path folder(std::int64_t step) const;
  /// True if the run has a checkpoint of this step.
  bool has(std::int64_t step) const;
  /// The run's newest checkpoint.
  std::optional<std::filesystem::path> newest() const;
  /// True if this process has written a checkpoint of the run.
  bool has_written() const { return has_written_; }

  /// Locks `output_dir`, creating it if necessary, for this store until `unlock` or the end of the process.
  /// Returns false if another store holds the lock, in this or another process; true if the file system has
  /// no locks. Throws CheckpointError if `output_dir` can't be created.
  [[nodiscard]] bool lock();
  void unlock();

  /// Cleans up after a crash: restores old checkpoints whose replacement wasn't finished, and removes
  /// unfinished ones along with temporary files of `latest` and `trainer_state.json`. No other store may work
  /// in `output_dir` (see `lock`). Returns a description of each failure; throws CheckpointError if
  /// `output_dir` can't be read.
  std::vector<std::string> clean();

  /// The checkpoints to resume from, newest first, judged by their manifests; `on_fault(folder, why)` is
  /// called for each folder that can't be used.
  std::vector<std::filesystem::path> candidates(
      const std::function<void(const std::filesystem::path& folder, std::string_view why)>& on_fault) const;

  /// Begins a run, or continues the run of `manifest`.
  void begin();
  void begin(const std::optional<Manifest>& manifest);

  /// Creates a folder to write the checkpoint of `step` into. If `output_dir` has been removed, and the lock
  /// with it, locks it again; throws CheckpointError if another store holds the lock by then.
  std::unique_ptr<FolderWriter> create(std::int64_t step);

  /// Moves the checkpoint into place, points `latest` at it, and removes the checkpoints beyond `limit` and
  /// the checkpoints kept only because they were once the best: oldest first, but never `best` or the newest.
  /// Throws CheckpointError if the checkpoint couldn't be written; other failures are returned as text.
  [[nodiscard]] std::optional<std::string> commit(FolderWriter& writer, Manifest manifest,
                                                  std::optional<std::int64_t> limit,
                                                  const std::optional<std::filesystem::path>& best);

  /// Finishes a commit that a crash interrupted, if `checkpoint` is the run's newest: points `latest` at it
  /// and removes old checkpoints, as `commit` does.
  [[nodiscard]] std::optional<std::string> finish_commit(const std::filesystem::path& checkpoint,
                                                         std::optional<std::int64_t> limit,
                                                         const std::optional<std::filesystem::path>& best);

 private:
  struct Entry {
    std::filesystem::path path;
    detail::CheckpointAge age;
    std::string reason;
  };

  /// Renames a folder whose name is needed but which isn't one of the run's checkpoints, to
  /// "checkpoint-5.RUN" or "checkpoint-5.other".
  void move_aside(const std::filesystem::path& target);
  // Does the rest of a commit. A failure here doesn't undo the checkpoint.
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
  std::vector<Entry> entries_;  // the run's checkpoints, oldest first
  bool has_written_ = false;
  std::unique_ptr<detail::LockFile> lock_;
};

}  // namespace etude::inline v0
