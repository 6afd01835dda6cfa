#include "etude/checkpoint/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder.hpp"
#include "etude/io/folder_lock.hpp"
#include "etude/io/manifest.hpp"

namespace etude::inline v0 {

std::optional<std::int64_t> checkpoint_step(const std::filesystem::path& folder) {
  const auto name = folder.filename().string();
  constexpr std::string_view prefix = "checkpoint-";
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

std::vector<std::filesystem::path> checkpoint_folders(const std::filesystem::path& output_dir) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(output_dir, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code gone; checkpoint_step(entry->path()) && entry->is_directory(gone))
      found.push_back(entry->path());
  std::ranges::sort(found, {}, [](const auto& path) { return *checkpoint_step(path); });
  return found;
}

std::optional<std::filesystem::path> get_last_checkpoint(const std::filesystem::path& output_dir) {
  const auto found = checkpoint_folders(output_dir);
  return found.empty() ? std::nullopt : std::optional(found.back());
}

namespace detail {

namespace {

CheckpointAge age_of(const Manifest& manifest, const std::filesystem::path& folder) {
  if (manifest.serial < Manifest::most_serial) return {manifest.serial, {}, {}};
  std::error_code gone;
  return {manifest.serial, std::filesystem::last_write_time(folder / manifest_file, gone),
          manifest.global_step};
}

// True if `name` is ".checkpoint-STEP.partial" or ".checkpoint-STEP.deleted", perhaps with more parts in
// between.
bool is_leftover(const std::string& name) {
  return name.starts_with('.') && (name.ends_with(".partial") || name.ends_with(".deleted")) &&
         checkpoint_step(name.substr(1, name.find('.', 1) - 1)).has_value();
}

}  // namespace

}  // namespace detail

CheckpointStore::CheckpointStore(std::filesystem::path output_dir, std::shared_ptr<FileSystem> files)
    : output_dir_(std::move(output_dir)), files_(files ? std::move(files) : std::make_shared<FileSystem>()) {}

CheckpointStore::~CheckpointStore() = default;

std::filesystem::path CheckpointStore::folder(std::int64_t step) const {
  return output_dir_ / fmt::format("checkpoint-{}", step);
}

bool CheckpointStore::has(std::int64_t step) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.path == folder(step); });
}

std::optional<std::filesystem::path> CheckpointStore::newest() const {
  return entries_.empty() ? std::nullopt : std::optional(entries_.back().path);
}

bool CheckpointStore::lock() {
  if (lock_) return true;
  try {
    files_->create_directories(output_dir_);
  } catch (const CheckpointError& error) {
    throw CheckpointError(fmt::format("output_dir is {}: {}", output_dir_.string(), error.what()));
  }
  if (::faccessat(AT_FDCWD, output_dir_.c_str(), W_OK | X_OK, AT_EACCESS) != 0 &&
      (errno == EACCES || errno == EROFS))
    throw CheckpointError(fmt::format("output_dir is {}: must be a folder that can be written to: {}",
                                      output_dir_.string(), std::strerror(errno)));
  lock_ = std::make_unique<detail::LockFile>(output_dir_ / ".etude.lock");
  if (lock_->state() != detail::LockState::taken) return true;
  lock_.reset();
  return false;
}

void CheckpointStore::unlock() { lock_.reset(); }

std::vector<std::string> CheckpointStore::clean() {
  auto problems = recover_replaced(*files_, output_dir_, [](const std::filesystem::path& path) {
    return checkpoint_step(path).has_value();
  });
  std::vector<std::pair<std::filesystem::path, bool>> found;  // true for the folder of a checkpoint
  std::error_code error;
  for (std::filesystem::directory_iterator entry(output_dir_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const auto name = entry->path().filename().string();
    const auto type = entry->symlink_status(gone).type();
    if (detail::is_leftover(name))
      found.emplace_back(entry->path(), true);
    else if ((type == std::filesystem::file_type::symlink && name.starts_with(".latest.")) ||
             (type == std::filesystem::file_type::regular && name.starts_with(".trainer_state.json.") &&
              name.ends_with(".partial")))
      found.emplace_back(entry->path(), false);
  }
  std::ranges::sort(found);
  for (const auto& [path, is_folder] : found) try {
      if (is_folder)
        remove_abandoned(*files_, path);
      else
        files_->remove_all(path);
    } catch (const CheckpointError& problem) {
      problems.emplace_back(problem.what());
    }
  return problems;
}

std::vector<std::filesystem::path> CheckpointStore::candidates(
    const std::function<void(const std::filesystem::path& folder, std::string_view why)>& on_fault) const {
  std::vector<std::pair<detail::CheckpointAge, std::filesystem::path>> found;
  for (const auto& path : checkpoint_folders(output_dir_)) try {
      found.emplace_back(detail::age_of(read_manifest(path), path), path);
    } catch (const CheckpointError& error) {
      on_fault(path, error.what());
    }
  std::ranges::stable_sort(found, std::ranges::greater(), [](const auto& aged) { return aged.first; });
  std::vector<std::filesystem::path> result;
  for (auto& [age, path] : found) result.push_back(std::move(path));
  return result;
}

void CheckpointStore::begin() { begin(std::nullopt); }

void CheckpointStore::begin(const std::optional<Manifest>& manifest) {
  run_ = manifest && !manifest->run.empty() ? manifest->run : detail::random_name();
  entries_.clear();
  for (const auto& path : checkpoint_folders(output_dir_)) try {
      const auto found = read_manifest(path);
      serial_ = std::max(serial_, found.serial);
      // A folder with another name is a user's copy.
      if (found.run == run_ && path.filename() == folder(found.global_step).filename())
        entries_.push_back({path, detail::age_of(found, path), found.reason});
    } catch (const CheckpointError&) {
      // The folder is another program's, or damaged, so it can't be used and must not be removed.
    }
  std::ranges::sort(entries_, {}, &Entry::age);
}

std::unique_ptr<FolderWriter> CheckpointStore::create(std::int64_t step) {
  if (lock_ && lock_->is_lost()) {
    lock_.reset();
    if (!lock())
      throw CheckpointError(
          fmt::format("output_dir is {}: it was removed during the training, and another training is writing "
                      "its checkpoints there",
                      output_dir_.string()));
  }
  return std::make_unique<FolderWriter>(*files_, folder(step),
                                        output_dir_ / fmt::format(".checkpoint-{}.{}.partial", step, run_));
}

std::optional<std::string> CheckpointStore::commit(FolderWriter& writer, Manifest manifest,
                                                   std::optional<std::int64_t> limit,
                                                   const std::optional<std::filesystem::path>& best) {
  manifest.run = run_;
  manifest.serial = serial_ = std::min(serial_ + 1, Manifest::most_serial);
  // A periodic checkpoint stays periodic when it is written again for another reason.
  for (const auto& entry : entries_)
    if (entry.path == writer.target() && entry.reason == "periodic") manifest.reason = entry.reason;
  move_aside(writer.target());
  writer.commit(manifest);
  has_written_ = true;
  std::erase_if(entries_, [&](const Entry& entry) { return entry.path == writer.target(); });
  entries_.push_back({writer.target(), detail::age_of(manifest, writer.target()), manifest.reason});
  return settle(writer.target(), limit, best);
}

std::optional<std::string> CheckpointStore::finish_commit(const std::filesystem::path& checkpoint,
                                                          std::optional<std::int64_t> limit,
                                                          const std::optional<std::filesystem::path>& best) {
  std::error_code error;
  if (entries_.empty() || !std::filesystem::equivalent(entries_.back().path, checkpoint, error))
    return std::nullopt;
  return settle(entries_.back().path, limit, best);
}

void CheckpointStore::move_aside(const std::filesystem::path& target) {
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

std::optional<std::string> CheckpointStore::settle(const std::filesystem::path& newest,
                                                   std::optional<std::int64_t> limit,
                                                   const std::optional<std::filesystem::path>& best) {
  std::vector<std::string> problems;
  point_at(newest, problems);
  rotate(limit, best, problems);
  if (problems.empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(problems, "; "));
}

void CheckpointStore::point_at(const std::filesystem::path& target, std::vector<std::string>& problems) {
  const auto latest = output_dir_ / "latest", beside = output_dir_ / fmt::format(".latest.{}", run_);
  std::error_code error;
  const auto there = std::filesystem::symlink_status(latest, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_symlink(there)) {
    problems.push_back(fmt::format("{} stays as it is: it isn't a symbolic link", latest.string()));
    return;
  }
  try {
    files_->remove_all(beside);
    if (!files_->create_symlink(target.filename(), beside)) return;  // the link is optional
    files_->rename(beside, latest);
    files_->sync(output_dir_);
  } catch (const CheckpointError& fault) {
    problems.push_back(
        fmt::format("{} may not point at {}: {}", latest.string(), target.filename().string(), fault.what()));
  }
}

void CheckpointStore::rotate(std::optional<std::int64_t> limit,
                             const std::optional<std::filesystem::path>& best,
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
    problems.push_back(fmt::format("an old checkpoint couldn't be removed: {}", first_fault));
}

void CheckpointStore::remove(const std::filesystem::path& path) {
  const auto deleted = output_dir_ / ("." + path.filename().string() + ".deleted");
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    files_->remove_all(deleted);
    files_->rename(path, deleted);  // a half-removed folder must not look like a checkpoint
    files_->remove_all(deleted);
  }
  std::erase_if(entries_, [&](const Entry& entry) { return entry.path == path; });
}

}  // namespace etude::inline v0
