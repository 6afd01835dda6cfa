#include "etude/integrations/wandb/offline_run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <exception>
#include <fstream>
#include <system_error>

#include "etude/base/error.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/integrations/shared/tracked_run.hpp"
#include "etude/integrations/wandb/media.hpp"
#include "etude/integrations/wandb/metadata.hpp"
#include "etude/io/file_system.hpp"

namespace etude::inline v0::detail {

std::filesystem::path WandbRun::make_folder(const std::filesystem::path& directory,
                                            const WandbRunInfo& info) try {
  default_file_system().create_directories(directory);
  // The name has whole seconds, and a run may start several times within a second.
  for (auto time = std::chrono::system_clock::to_time_t(info.start);; ++time) {
    const auto folder = directory / fmt::format("offline-run-{:%Y%m%d_%H%M%S}-{}", local_time(time), info.id);
    if (::mkdir(folder.c_str(), 0777) == 0) {
      std::filesystem::create_directories(folder / "files");
      return folder;
    }
    if (errno != EEXIST)
      throw ArgumentError(fmt::format("dir: {} can't be created: {}", folder.string(), std::strerror(errno)));
  }
} catch (const CheckpointError& error) {
  throw ArgumentError(fmt::format("dir: must be a folder that can be written: {}", error.what()));
}

WandbRun::WandbRun(const std::filesystem::path& directory, WandbRunInfo info)
    : info_(std::move(info)),
      folder_(make_folder(directory, info_)),
      log_(folder_ / fmt::format("run-{}.wandb", info_.id)),
      artifacts_(folder_ / "artifacts",
                 {.run_id = info_.id, .project = info_.project, .entity = info_.entity, .type = "model"},
                 {.write = [this](const std::string& message) { write(WandbKind::artifact, message); },
                  .report = [this](const std::string& fault) { report(fault); }}) {
  const auto environment = wandb_environment(info_.start);
  info_.host = environment.host;
  write(WandbKind::header, wandb_header_message());
  write(WandbKind::run, wandb_run_message(info_));
  write(WandbKind::environment, wandb_environment_message(environment));
  try {
    write_file(default_file_system(), folder_ / "files" / "wandb-metadata.json",
               wandb_metadata(environment).dump(2) + '\n');
    write(WandbKind::files, wandb_file_message("wandb-metadata.json"));
  } catch (const std::exception& error) {
    report(error.what());
  }
  write(WandbKind::metric, wandb_metric_message({.name = "train/global_step", .defined = true}));
  write(WandbKind::metric,
        wandb_metric_message({.glob = "*", .step_metric = "train/global_step", .defined = true}));
  defined_.insert("train/global_step");
  link_latest();
}

WandbRun::~WandbRun() { finish(0); }

void WandbRun::link_latest() const {
  const auto link = folder_.parent_path() / "latest-run";
  const auto partial = folder_.parent_path() / fmt::format(".latest-run.{}", random_name());
  std::error_code error;
  if (const auto there = std::filesystem::symlink_status(link, error);
      std::filesystem::exists(there) && !std::filesystem::is_symlink(there))
    return;
  std::filesystem::create_directory_symlink(folder_.filename(), partial, error);
  if (!error) std::filesystem::rename(partial, link, error);
}

double WandbRun::seconds() const {
  return info_.starting_seconds +
         std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

void WandbRun::write(WandbKind kind, std::string_view message) {
  const std::lock_guard lock(mutex_);
  if (log_.append(wandb_record(records_ + 1, kind, message)))
    ++records_;
  else if (!std::exchange(has_warned_, true))
    faults_.push_back(
        fmt::format("records of {} are lost: {}", folder_.string(), std::strerror(log_.error())));
}

void WandbRun::report(std::string fault) {
  const std::lock_guard lock(mutex_);
  faults_.push_back(std::move(fault));
}

std::vector<std::string> WandbRun::take_faults() {
  const std::lock_guard lock(mutex_);
  return std::exchange(faults_, {});
}

std::int64_t WandbRun::lost() const {
  const std::lock_guard lock(mutex_);
  return log_.lost();
}

void WandbRun::configure(const nlohmann::ordered_json& config) {
  write(WandbKind::config, wandb_config_message(config));
}

void WandbRun::define(const std::string& name) {
  // Older releases of `wandb sync` expect the log's writer to expand the glob.
  if (defined_.insert(name).second)
    write(WandbKind::metric,
          wandb_metric_message({.name = name, .step_metric = "train/global_step", .expanded = true}));
}

void WandbRun::log(std::int64_t step, std::int64_t global_step, const WandbValues& metrics, WandbItems also) {
  WandbItems row;
  for (const auto& [name, value] : metrics) {
    auto key = tracked_name(name);
    if (key == "train/global_step") continue;
    define(key);
    numbers_[key] = value;
    row.push_back({{std::move(key)}, wandb_number(value)});
  }
  for (auto& item : also) {
    define(item.path.front());
    row.push_back(std::move(item));
  }
  const auto runtime = seconds();
  row.push_back({{"train/global_step"}, std::to_string(global_step)});
  numbers_["train/global_step"] = static_cast<double>(global_step);
  row.push_back({{"_timestamp"}, wandb_number(unix_seconds())});
  row.push_back({{"_runtime"}, wandb_number(runtime)});
  row.push_back({{"_step"}, std::to_string(step)});
  write(WandbKind::history, wandb_history_message(row, step));
  row.push_back({{"_wandb", "runtime"}, std::to_string(static_cast<std::int64_t>(runtime))});
  write(WandbKind::summary, wandb_summary_message(row));
  ++rows_;
}

void WandbRun::log_samples(std::int64_t step, std::int64_t global_step, const std::vector<Sample>& samples) {
  WandbItems row;
  for (const auto& sample : samples) try {
      const auto key = tracked_name(sample.name);
      const auto media = wandb_media(key, step, sample);
      const auto path = folder_ / "files" / media.path;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream file(path, std::ios::binary);
      file << media.bytes << std::flush;
      if (!file) throw Error(fmt::format("{} can't be written", path.string()));
      write(WandbKind::files, wandb_file_message(media.path));
      std::erase_if(row, [&](const auto& item) { return item.path.front() == key; });
      row.push_back({{key}, wandb_json(media.value)});
    } catch (const std::exception& error) {
      report(fmt::format("the sample {} is left out: {}", sample.name, error.what()));
    }
  log(step, global_step, {}, std::move(row));
}

void WandbRun::summarize(const WandbValues& values) {
  WandbItems items;
  for (const auto& [name, value] : values) {
    numbers_[name] = value;
    items.push_back({{name}, wandb_number(value)});
  }
  if (!items.empty()) write(WandbKind::summary, wandb_summary_message(items));
}

nlohmann::ordered_json WandbRun::summary_numbers() const {
  auto numbers = nlohmann::ordered_json::object();
  for (const auto& [name, value] : numbers_)
    if (std::isfinite(value)) numbers[name] = value;
  return numbers;
}

std::string wandb_interrupted_run(const std::filesystem::path& file) {
  std::ifstream text(file);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto id = text_in(json, "run_id");
  return id.find_first_of(":;,#?/\\' ") == id.npos ? id : "";
}

void WandbRun::keep_id_in(const std::filesystem::path& file) {
  try {
    write_file(default_file_system(), file, nlohmann::json{{"run_id", info_.id}}.dump());
    id_file_ = file;
  } catch (const CheckpointError& error) {
    report(error.what());
  }
}

void WandbRun::finish(int exit_code) noexcept {
  if (std::exchange(finished_, true)) return;
  try {
    artifacts_.wait();
    write(WandbKind::exit, wandb_exit_message(exit_code, static_cast<std::int64_t>(seconds())));
    log_.sync();
    std::error_code error;
    if (exit_code == 0 && !id_file_.empty()) std::filesystem::remove(id_file_, error);
  } catch (const std::exception&) {
    // Without its last record, the run counts as failed.
  }
}

}  // namespace etude::inline v0::detail
