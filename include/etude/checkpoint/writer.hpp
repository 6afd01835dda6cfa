#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "etude/checkpoint/checkpoint.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/background.hpp"
#include "etude/io/file_system.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

class FolderWriter;

/// Writes a trainer's checkpoints, one at a time and in the background with `save_async`, and remembers the
/// one that callbacks haven't heard of yet.
class CheckpointWriter {
 public:
  /// The reason that the manifests of checkpoints give: this one's during its lifetime, "periodic" otherwise.
  class Reason {
   public:
    Reason(CheckpointWriter& writer, std::string reason);
    Reason(const Reason&) = delete;
    Reason& operator=(const Reason&) = delete;
    ~Reason();

   private:
    CheckpointWriter& writer_;
  };

  /// `args` and `files`, which may be null or become so, must outlive this.
  CheckpointWriter(const TrainingArguments& args, const std::shared_ptr<FileSystem>& files);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  /// The store of `output_dir`. The first call makes it and begins a run, unless `new_store` did.
  CheckpointStore& store();
  /// Replaces the store by one that hasn't begun a run. No checkpoint may be being written.
  CheckpointStore& new_store();
  /// Unlocks `output_dir` if there is a store.
  void unlock();

  const std::string& reason() const { return reason_; }

  /// Writes a checkpoint to a folder of `store`; `best` is never removed to keep within `save_total_limit`.
  /// With `save_async` it is on the disk once `wait` has returned. Throws CheckpointError.
  void write(std::unique_ptr<FolderWriter> folder, CheckpointContents contents,
             std::optional<std::filesystem::path> best);

  /// Whether a checkpoint is written in the background, or was and `wait` hasn't been called since.
  bool is_writing() const { return job_.is_running(); }
  /// Whether `wait` would return at once from such a checkpoint.
  bool has_ended() { return job_.has_ended(); }
  /// Waits for the checkpoint that is being written, if any. Rethrows what failed; the checkpoint then
  /// doesn't exist.
  void wait();

  /// Remembers a checkpoint, on the disk or still being written, until `take_unannounced` or until `wait`
  /// shows that it doesn't exist.
  void announce_later(std::filesystem::path checkpoint) { unannounced_ = std::move(checkpoint); }
  std::optional<std::filesystem::path> take_unannounced() {
    return std::exchange(unannounced_, std::nullopt);
  }

 private:
  const TrainingArguments& args_;
  const std::shared_ptr<FileSystem>& files_;
  std::unique_ptr<CheckpointStore> store_;
  std::string reason_ = "periodic";
  SnapshotBuffers buffers_;
  std::optional<std::filesystem::path> unannounced_;
  BackgroundJob job_;  // last, so that it ends before what it uses
};

}  // namespace etude::inline v0
