#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/scoped_value.hpp"
#include "etude/checkpoint/checkpoint.hpp"
#include "etude/checkpoint/snapshot_buffers.hpp"
#include "etude/checkpoint/store.hpp"
#include "etude/io/background.hpp"
#include "etude/io/file_system.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

class FolderWriter;

/// Writes a trainer's checkpoints one at a time, in the background with `save_async`, and remembers the one
/// that hasn't been reported to callbacks yet.
class CheckpointWriter {
 public:
  /// Sets the reason that manifests give for their checkpoint during its lifetime; otherwise it is
  /// "periodic".
  class Reason : ScopedValue<std::string> {
   public:
    Reason(CheckpointWriter& writer, std::string reason) : ScopedValue(writer.reason_, std::move(reason)) {}
  };

  /// `args` and `files` must outlive this object; `files` may be null, or become null.
  CheckpointWriter(const TrainingArguments& args, const std::shared_ptr<FileSystem>& files);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();

  /// The store of `output_dir`. The first call creates it and begins a run, unless `new_store` has been
  /// called.
  CheckpointStore& store();
  /// Replaces the store with one that hasn't begun a run. Must not be called while a checkpoint is being
  /// written.
  CheckpointStore& new_store();
  /// Unlocks `output_dir` if there is a store.
  void unlock();

  const std::string& reason() const { return reason_; }

  /// Writes a checkpoint to a folder of `store`; `best` is never removed to keep within `save_total_limit`.
  /// With `save_async` it is on disk once `wait` has returned. Throws CheckpointError.
  void write(std::unique_ptr<FolderWriter> folder, CheckpointContents contents,
             std::optional<std::filesystem::path> best);

  /// True if a checkpoint is being written in the background, or was written and `wait` hasn't been called
  /// since.
  bool is_writing() const { return job_.is_running(); }
  /// True if that checkpoint is written, so that `wait` would return at once.
  bool has_ended() { return job_.has_ended(); }
  /// Waits for the checkpoint that is being written, if any. Rethrows its exception; the checkpoint doesn't
  /// exist then.
  void wait();

  /// Remembers a checkpoint, on disk or still being written, until `take_unannounced` is called or `wait`
  /// finds that it failed.
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
  BackgroundJob job_;  // last, so that it is destroyed before the members that it uses
};

}  // namespace etude::inline v0
