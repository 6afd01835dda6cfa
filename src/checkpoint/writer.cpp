#include "etude/checkpoint/writer.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/message.hpp"
#include "etude/io/folder.hpp"

namespace etude::inline v0 {

CheckpointWriter::CheckpointWriter(const TrainingArguments& args, const std::shared_ptr<FileSystem>& files)
    : args_(args), files_(files) {}

CheckpointWriter::~CheckpointWriter() = default;

CheckpointStore& CheckpointWriter::store() {
  if (!store_) new_store().begin();
  return *store_;
}

CheckpointStore& CheckpointWriter::new_store() {
  store_ = std::make_unique<CheckpointStore>(args_.output_dir, files_);
  return *store_;
}

void CheckpointWriter::unlock() {
  if (store_) store_->unlock();
}

void CheckpointWriter::write(std::unique_ptr<FolderWriter> folder, CheckpointContents contents,
                             std::optional<std::filesystem::path> best) {
  const auto job = [this, &target = store(), folder = std::shared_ptr(std::move(folder)),
                    best = std::move(best), limit = args_.save_total_limit](const CheckpointContents& of) {
    of.write(*folder, target.newest());
    if (const auto problem = target.commit(*folder, of.manifest(), limit, best))
      message(args_, LogLevel::warning, "{}", *problem);
  };
  if (!args_.save_async) return job(contents);
  contents.detach(buffers_);
  job_.start([job, contents = std::move(contents)] { job(contents); });
}

void CheckpointWriter::wait() {
  try {
    job_.wait();
  } catch (...) {
    unannounced_.reset();
    throw;
  }
}

}  // namespace etude::inline v0
