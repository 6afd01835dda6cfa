#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/checkpoint/file_system.hpp"
#include "etude/checkpoint/folder.hpp"
#include "etude/checkpoint/folder_lock.hpp"
#include "etude/checkpoint/manifest.hpp"
#include "etude/error.hpp"

namespace etude {

/// The step of a folder called "checkpoint-STEP".
inline std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& folder) {
  const auto name = folder.filename().string();
  constexpr std::string_view prefix = "checkpoint-";
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

/// The folders in `output_dir` that are called as checkpoints are, by step.
inline std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& output_dir) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(output_dir, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code gone; checkpoint_step(entry->path()) && entry->is_directory(gone))
      found.push_back(entry->path());
  std::ranges::sort(found, {}, [](const auto& path) { return *checkpoint_step(path); });
  return found;
}

/// The newest checkpoint of `output_dir` by the number in its name, whole or not, as Hugging Face's function
/// of this name.
inline std::optional<std::filesystem::path> get_last_checkpoint(const std::filesystem::path& output_dir) {
  const auto found = checkpoint_folders(output_dir);
  return found.empty() ? std::nullopt : std::optional(found.back());
}

/// The checkpoints of one run in `output_dir`: where they are written, which is the newest, and which may go.
/// A run is what begins with a `train()` and goes on with those that resume it. Folders of other runs and
/// programs are never changed nor removed; one whose name is needed gets another.
class CheckpointStore {
 public:
  explicit CheckpointStore(std::filesystem::path output_dir, std::shared_ptr<FileSystem> files = nullptr)
      : output_dir_(std::move(output_dir)),
        files_(files ? std::move(files) : std::make_shared<FileSystem>()) {}

  const std::filesystem::path& output_dir() const { return output_dir_; }
  FileSystem& files() { return *files_; }
  std::filesystem::path folder(std::int64_t step) const {
    return output_dir_ / fmt::format("checkpoint-{}", step);
  }
  /// Whether the run has a checkpoint of this step.
  bool has(std::int64_t step) const {
    return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.path == folder(step); });
  }
  /// Whether this process has written a checkpoint of the run.
  bool has_written() const { return has_written_; }

  /// Takes `output_dir`, which is made if it isn't there, for this store alone, until `unlock` or the end of
  /// the process. False if another has it, here or in another process; where that can't be known, on a file
  /// system without locks, true. Throws CheckpointError where `output_dir` can't be made.
  [[nodiscard]] bool lock() {
    if (lock_) return true;
    files_->create_directories(output_dir_);
    lock_.emplace(output_dir_ / ".etude.lock");
    if (lock_->state() != detail::LockState::taken) return true;
    lock_.reset();
    return false;
  }
  void unlock() { lock_.reset(); }

  /// Puts right what a crash has left: old checkpoints whose replacement was not finished are back,
  /// unfinished ones are removed, and what was to become `latest` or `trainer_state.json`. No other store may
  /// be at work in `output_dir` (see `lock`). Returns what couldn't be done, in words; throws CheckpointError
  /// where `output_dir` can't be read.
  std::vector<std::string> clean() {
    auto problems = recover_replaced(*files_, output_dir_, [](const std::filesystem::path& path) {
      return checkpoint_step(path).has_value();
    });
    std::vector<std::filesystem::path> leftovers, others;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(output_dir_, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code gone;
      const auto name = entry->path().filename().string();
      const auto type = entry->symlink_status(gone).type();
      if (is_leftover(name)) leftovers.push_back(entry->path());
      if ((type == std::filesystem::file_type::symlink && name.starts_with(".latest.")) ||
          (type == std::filesystem::file_type::regular && name.starts_with(".trainer_state.json.") &&
           name.ends_with(".partial")))
        others.push_back(entry->path());
    }
    const auto attempt = [&](const auto& remove, const std::filesystem::path& path) {
      try {
        remove(path);
      } catch (const CheckpointError& problem) {
        problems.emplace_back(problem.what());
      }
    };
    for (const auto& path : leftovers)
      attempt([&](const auto& folder) { remove_abandoned(*files_, folder); }, path);
    for (const auto& path : others) attempt([&](const auto& file) { files_->remove_all(file); }, path);
    return problems;
  }

  /// The checkpoints to resume from, the newest first, as far as their manifests say; `on_fault(folder, why)`
  /// hears of each folder that can't be one.
  template <class OnFault>
  std::vector<std::filesystem::path> candidates(OnFault on_fault) const {
    std::vector<std::pair<std::int64_t, std::filesystem::path>> found;
    for (const auto& path : checkpoint_folders(output_dir_)) try {
        found.emplace_back(read_manifest(path).serial, path);
      } catch (const CheckpointError& error) {
        on_fault(path, error.what());
      }
    std::ranges::stable_sort(found, std::ranges::greater(),
                             &std::pair<std::int64_t, std::filesystem::path>::first);
    std::vector<std::filesystem::path> result;
    for (auto& [serial, path] : found) result.push_back(std::move(path));
    return result;
  }

  /// Begins a run, or goes on with the one that `manifest` is of.
  void begin(const std::optional<Manifest>& manifest = {}) {
    run_ = manifest && !manifest->run.empty() ? manifest->run : detail::random_name();
    entries_.clear();
    for (const auto& path : checkpoint_folders(output_dir_)) try {
        const auto found = read_manifest(path);
        serial_ = std::max(serial_, found.serial);
        // One of another name was copied by somebody, and is theirs.
        if (found.run == run_ && path.filename() == folder(found.global_step).filename())
          entries_.push_back({path, found.serial, found.reason});
      } catch (const CheckpointError&) {
        // Another program's, or damaged: not to be counted on, nor to be removed.
      }
    std::ranges::sort(entries_, {}, &Entry::serial);
  }

  /// A folder to write the checkpoint of `step` into.
  std::unique_ptr<FolderWriter> create(std::int64_t step) {
    return std::make_unique<FolderWriter>(*files_, folder(step),
                                          output_dir_ / fmt::format(".checkpoint-{}.{}.partial", step, run_));
  }

  /// Puts it in its place, points `latest` at it, and removes what `limit` leaves no room for, or was kept
  /// for being the best only: oldest first, never `best` nor the newest. Throws CheckpointError where the
  /// checkpoint couldn't be written; what else couldn't be done is returned, in words.
  [[nodiscard]] std::optional<std::string> commit(FolderWriter& writer, Manifest facts,
                                                  std::optional<std::int64_t> limit,
                                                  const std::optional<std::filesystem::path>& best) {
    facts.run = run_;
    facts.serial = ++serial_;
    for (const auto& entry : entries_)  // One that was due stays when it is written again for another reason.
      if (entry.path == writer.target() && entry.reason == "periodic") facts.reason = entry.reason;
    move_aside(writer.target());
    writer.commit(facts);
    has_written_ = true;
    std::erase_if(entries_, [&](const Entry& entry) { return entry.path == writer.target(); });
    entries_.push_back({writer.target(), facts.serial, facts.reason});
    return settle(writer.target(), limit, best);
  }

  /// Does what a crash has left to do after the checkpoint that the run goes on from, if that is its newest:
  /// `latest` points at it, and what the limit leaves no room for is removed, as by `commit`.
  [[nodiscard]] std::optional<std::string> finish_commit(const std::filesystem::path& checkpoint,
                                                         std::optional<std::int64_t> limit,
                                                         const std::optional<std::filesystem::path>& best) {
    std::error_code error;
    if (entries_.empty() || !std::filesystem::equivalent(entries_.back().path, checkpoint, error))
      return std::nullopt;
    return settle(entries_.back().path, limit, best);
  }

 private:
  struct Entry {
    std::filesystem::path path;
    std::int64_t serial;
    std::string reason;
  };

  // Whether `name` is ".checkpoint-STEP.partial" or ".deleted", with or without words between.
  static bool is_leftover(const std::string& name) {
    return name.starts_with('.') && (name.ends_with(".partial") || name.ends_with(".deleted")) &&
           checkpoint_step(name.substr(1, name.find('.', 1) - 1)).has_value();
  }

  /// What has the name of a checkpoint of ours and isn't one gets another: "checkpoint-5.RUN", or
  /// "checkpoint-5.other".
  void move_aside(const std::filesystem::path& target) {
    std::error_code error;
    if (!std::filesystem::exists(std::filesystem::symlink_status(target, error))) return;
    if (std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.path == target; })) return;
    auto name = target.string() + ".other";
    try {
      if (const auto run = read_manifest(target).run; !run.empty()) name = target.string() + "." + run;
    } catch (const CheckpointError&) {
    }
    std::filesystem::path aside = name;
    for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(aside, error)); ++i)
      aside = fmt::format("{}-{}", name, i);
    files_->rename(target, aside);
    files_->sync(output_dir_);
  }

  // The rest of a commit, of which nothing undoes the checkpoint.
  std::optional<std::string> settle(const std::filesystem::path& newest, std::optional<std::int64_t> limit,
                                    const std::optional<std::filesystem::path>& best) {
    std::vector<std::string> problems;
    point_at(newest, problems);
    rotate(limit, best, problems);
    if (problems.empty()) return std::nullopt;
    return fmt::format("{}", fmt::join(problems, "; "));
  }

  void point_at(const std::filesystem::path& target, std::vector<std::string>& problems) {
    const auto latest = output_dir_ / "latest", beside = output_dir_ / fmt::format(".latest.{}", run_);
    std::error_code error;
    const auto there = std::filesystem::symlink_status(latest, error);
    if (std::filesystem::exists(there) && !std::filesystem::is_symlink(there)) {
      problems.push_back(fmt::format("{} stays as it is: it is no symbolic link", latest.string()));
      return;
    }
    try {
      files_->remove_all(beside);
      if (!files_->create_symlink(target.filename(), beside)) return;  // resuming doesn't need it
      files_->rename(beside, latest);
      files_->sync(output_dir_);
    } catch (const CheckpointError& fault) {
      problems.push_back(fmt::format("{} may not point at {}: {}", latest.string(),
                                     target.filename().string(), fault.what()));
    }
  }

  void rotate(std::optional<std::int64_t> limit, const std::optional<std::filesystem::path>& best,
              std::vector<std::string>& problems) {
    const auto is_protected = [&](const Entry& entry) {
      return entry.path == entries_.back().path || (best && entry.path.filename() == best->filename());
    };
    auto left = std::ssize(entries_);
    std::vector<std::filesystem::path> old;
    for (const auto& entry : entries_) {
      const bool too_many = limit && left > *limit;
      if (is_protected(entry) || !(too_many || entry.reason == "best")) continue;
      old.push_back(entry.path);
      --left;
    }
    std::string first_fault;
    for (const auto& path : old) try {
        remove(path);
      } catch (const CheckpointError& fault) {
        if (first_fault.empty()) first_fault = fault.what();
      }
    if (!first_fault.empty())
      problems.push_back(fmt::format("an old checkpoint is still there: {}", first_fault));
  }

  void remove(const std::filesystem::path& path) {
    const auto deleted = output_dir_ / ("." + path.filename().string() + ".deleted");
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      files_->remove_all(deleted);
      files_->rename(path, deleted);  // So that what is removed half way looks like no checkpoint.
      files_->remove_all(deleted);
    }
    std::erase_if(entries_, [&](const Entry& entry) { return entry.path == path; });
  }

  std::filesystem::path output_dir_;
  std::shared_ptr<FileSystem> files_;
  std::string run_;
  std::int64_t serial_ = 0;
  std::vector<Entry> entries_;  // of this run, oldest first
  bool has_written_ = false;
  std::optional<detail::LockFile> lock_;
};

}  // namespace etude
