#include "etude/integrations/comet/archive.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zip.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <system_error>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/read_file.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0::detail::comet {
namespace archive {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view messages = "messages.json", experiment = "experiment.json", partial = ".partial";

/// Packs the files of `folder`, uncompressed as Python's zipfile does, into an archive that only its owner
/// may read. Returns the number of entries skipped because they aren't files.
std::int64_t zip_folder(const fs::path& folder, const fs::path& path) {
  auto beside = path;
  beside += ".tmp";
  fs::remove(beside);
  AppendFile(beside, 0600);  // libzip keeps its mode
  std::int64_t left_out = 0;
  int code = 0;
  std::unique_ptr<zip_t, decltype(&zip_discard)> zip(
      zip_open(beside.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code), zip_discard);
  const auto fault = [&](const char* why) {
    return CheckpointError(fmt::format("{}: {}", beside.string(), why));
  };
  if (!zip) throw fault("it can't be created");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with('.')) continue;  // an unfinished file
    if (std::error_code error; !entry.is_regular_file(error)) {
      ++left_out;
      continue;
    }
    auto* source = zip_source_file(zip.get(), entry.path().c_str(), 0, -1);
    const auto index = source == nullptr ? -1
                                         : zip_file_add(zip.get(), entry.path().filename().c_str(), source,
                                                        ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      zip_source_free(source);
      throw fault(zip_strerror(zip.get()));
    }
    if (zip_set_file_compression(zip.get(), static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0) != 0)
      throw fault(zip_strerror(zip.get()));
  }
  if (zip_close(zip.get()) != 0) throw fault(zip_strerror(zip.get()));
  static_cast<void>(zip.release());
  default_file_system().sync(beside);
  default_file_system().rename(beside, path);
  default_file_system().sync(path.parent_path());
  return left_out;
}

/// Removes what libzip leaves behind when it is killed.
void remove_unfinished(const fs::path& path) {
  const auto begin = path.filename().string() + ".tmp";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path.parent_path(), error))
    if (entry.path().filename().string().starts_with(begin)) fs::remove(entry.path(), error);
}

/// Cuts off an incomplete last record.
void mend_end(const fs::path& path) {
  std::error_code error;
  const auto text = read_file(path);
  if (!text || fs::is_symlink(path, error)) return;
  if (const auto size = text->rfind('\n') + 1; size < text->size()) fs::resize_file(path, size, error);
}

std::int64_t changed_at(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return unix_milliseconds();
  return static_cast<std::int64_t>(status.st_mtime) * 1000;
}

void make_directory(const fs::path& directory) {
  std::error_code error;
  if (directory.has_parent_path()) fs::create_directories(directory.parent_path(), error);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    throw ArgumentError(
        fmt::format("CometCallback: offline_directory (or COMET_OFFLINE_DIRECTORY) {} can't be created: {}",
                    directory.string(), std::strerror(errno)));
}

}  // namespace

}  // namespace archive

Archive::Archive(const Settings& settings, std::int64_t start_time)
    : directory_(std::filesystem::absolute(settings.offline_directory).lexically_normal()) {
  namespace fs = std::filesystem;
  archive::make_directory(directory_);
  const auto nullable = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
  };
  experiment_ = {{"offline_id", settings.key},
                 {"project_name", nullable(settings.project)},
                 {"start_time", start_time},
                 {"stop_time", start_time},
                 {"tags", settings.tags},
                 {"workspace", nullable(settings.workspace)},
                 {"resume_strategy", settings.mode},
                 {"customer_error_reported", false},
                 {"customer_error_message", nullptr},
                 {"user_provided_experiment_key", !settings.key_is_new},
                 {"comet_start_sourced", false}};
  try {
    // under a name that no process searches for, until it is locked
    const auto unlocked = directory_ / fmt::format(".{}-{}", settings.key, random_name());
    fs::create_directory(unlocked);
    fs::permissions(unlocked, fs::perms::owner_all);
    folder_ = unlocked;
    lock_ = std::make_unique<FolderLock>(folder_);
    write_experiment();
    messages_ = AppendFile(folder_ / archive::messages, 0600);
    std::error_code error = std::make_error_code(std::errc::file_exists);
    for (int attempt = 0; error && attempt < 10; ++attempt) {
      stem_ = settings.key;
      if (!settings.key_is_new || attempt > 0) stem_ += '-' + random_name().substr(0, 6);
      if (fs::exists(directory_ / (stem_ + ".zip"))) continue;
      fs::rename(unlocked, directory_ / fmt::format(".{}{}", stem_, archive::partial), error);
    }
    if (error) throw fs::filesystem_error("rename", unlocked, error);
  } catch (const std::exception& e) {
    std::error_code error;
    if (!folder_.empty()) fs::remove_all(folder_, error);
    throw ArgumentError(
        fmt::format("CometCallback: offline_directory (or COMET_OFFLINE_DIRECTORY) {} can't be written: {}",
                    directory_.string(), e.what()));
  }
  folder_ = directory_ / fmt::format(".{}{}", stem_, archive::partial);
}

void Archive::write_experiment() {
  write_file(default_file_system(), folder_ / archive::experiment,
             experiment_.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace));
}

void Archive::put(std::vector<Message> messages) {
  std::string lines;
  for (auto& message : messages) {
    message["payload"]["message_id"] = ++count_;
    lines += message.dump(-1, ' ', true, Message::error_handler_t::replace) + '\n';
  }
  if (messages_ && messages_.append(lines)) return;
  lost_ += std::ssize(messages);
  if (!std::exchange(has_warned_, true))
    report(LogLevel::warning, fmt::format("Comet: {} can't be written, and what was logged is lost: {}",
                                          folder_.string(), std::strerror(messages_.error())));
}

void Archive::put_file(Message message, const std::filesystem::path& file) {
  const auto name = fmt::format("asset-{}", files_++);
  std::error_code error;
  std::filesystem::create_hard_link(file, folder_ / name, error);
  if (error) std::filesystem::copy_file(file, folder_ / name, error);
  if (error) {
    ++count_, ++lost_;
    report(LogLevel::warning, fmt::format("Comet: {} can't be kept: {}", file.string(), error.message()));
    return;
  }
  message["payload"]["file_path"] = name;
  put({std::move(message)});
}

void Archive::fail(const std::string& what) {
  experiment_["customer_error_reported"] = true;
  experiment_["customer_error_message"] = what;
}

void Archive::settle() {
  messages_.sync();
  try {
    experiment_["stop_time"] = unix_milliseconds();
    write_experiment();
  } catch (const std::exception&) {
    // the archive will then show an interrupted training
  }
}

void Archive::finish() {
  try {
    experiment_["stop_time"] = unix_milliseconds();
    write_experiment();
    const auto path = directory_ / (stem_ + ".zip");
    lost_ += archive::zip_folder(folder_, path);
    default_file_system().remove_all(folder_);
    report(lost_ > 0 ? LogLevel::warning : LogLevel::info,
           fmt::format("Comet: {} messages are in {} and {} were lost; to upload it: comet upload {}",
                       count_ - lost_, path.string(), lost_, path.string()));
  } catch (const std::exception& error) {
    report(LogLevel::warning,
           fmt::format("Comet: the archive of {} couldn't be made, and the next training tries again: {}",
                       folder_.string(), error.what()));
  }
}

std::vector<Notice> Archive::rescue(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::vector<Notice> notices;
  std::vector<fs::path> folders;
  std::error_code error;
  const auto whole = fs::absolute(directory, error).lexically_normal();
  for (const auto& entry : fs::directory_iterator(whole, error)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with('.') && name.ends_with(archive::partial) && entry.is_directory(error))
      folders.push_back(entry);
  }
  for (const auto& folder : folders) {
    try {
      const FolderLock lock(folder);
      // Other programs may also keep unfinished folders of this form.
      if (lock.state() != LockState::held || !fs::is_regular_file(folder / archive::experiment) ||
          !fs::is_regular_file(folder / archive::messages))
        continue;
      const auto name = folder.filename().string();
      const auto path =
          folder.parent_path() / (name.substr(1, name.size() - 1 - archive::partial.size()) + ".zip");
      archive::remove_unfinished(path);
      if (!fs::exists(path)) {
        const auto changed_at = archive::changed_at(folder / archive::messages);  // mending changes it
        archive::mend_end(folder / archive::messages);
        auto experiment = nlohmann::ordered_json::parse(read_file(folder / archive::experiment).value_or(""));
        if (experiment.at("stop_time") == experiment.at("start_time")) {
          experiment["stop_time"] = changed_at;
          experiment["customer_error_reported"] = true;
          experiment["customer_error_message"] = "The process ended in the middle of the training.";
          write_file(default_file_system(), folder / archive::experiment, experiment.dump(-1, ' ', true));
        }
        const auto lost = archive::zip_folder(folder, path);
        notices.push_back(
            {lost > 0 ? LogLevel::warning : LogLevel::info,
             fmt::format("Comet: {} belongs to a process that was killed, and {} files of it were "
                         "lost; to upload it: comet upload {}",
                         path.string(), lost, path.string())});
      }
      default_file_system().remove_all(folder);
    } catch (const std::exception& fault) {
      notices.push_back({LogLevel::warning, fmt::format("Comet: the archive of {} couldn't be made: {}",
                                                        folder.string(), fault.what())});
    }
  }
  return notices;
}

}  // namespace etude::inline v0::detail::comet
