#include "etude/integrations/codecarbon/emissions_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/read_file.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/integrations/shared/text.hpp"
#include "etude/io/file_system.hpp"
#include "etude/io/folder_lock.hpp"

namespace etude::inline v0::detail {
namespace emissions {

namespace {

Descriptor open(const std::filesystem::path& path, int flags) {
  return Descriptor(uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC); }));
}

Error unreadable(const std::filesystem::path& path) {
  return Error(fmt::format("{} can't be read: {}", path.string(), std::strerror(errno)));
}

/// The contents of a file from `offset` on; nullopt if it can't be read.
std::optional<std::string> read(const Descriptor& file, std::size_t offset = 0) {
  std::string text;
  for (;;) {
    constexpr std::size_t block = std::size_t{1} << 16;
    const auto size = text.size();
    text.resize(size + block);
    const auto count = uninterrupted(
        [&] { return ::pread(file.get(), text.data() + size, block, static_cast<off_t>(offset + size)); });
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) return std::nullopt;
    if (count == 0) return text;
  }
}

/// The columns of the file, in any order, if they are the columns of emissions.csv; otherwise empty.
std::vector<std::string> columns(const std::vector<std::string_view>& records) {
  if (records.empty()) return {};
  auto columns = csv_fields(records.front());
  auto sorted = columns;
  std::ranges::sort(sorted);
  auto expected = emissions_columns();
  std::ranges::sort(expected);
  return sorted == expected ? columns : std::vector<std::string>();
}

/// The index of a run's last record; the header's index if it has none.
std::size_t find(const std::vector<std::string_view>& records, const std::vector<std::string>& columns,
                 std::string_view run_id) {
  const auto column = static_cast<std::size_t>(std::ranges::find(columns, "run_id") - columns.begin());
  for (std::size_t i = records.size(); i-- > 1;) {
    if (records[i].find(run_id) == std::string_view::npos) continue;
    const auto values = csv_fields(records[i]);
    if (column < values.size() && values[column] == run_id) return i;
  }
  return 0;
}

std::string line(const std::vector<std::string>& names, const EmissionsRow& row) {
  std::vector<std::string> fields;
  for (const auto& name : names) {
    const auto value = row.find(name);
    fields.push_back(value == row.end() ? std::string() : csv_field(value->second));
  }
  return csv_record(fields) + '\n';
}

void back_up(const std::filesystem::path& path) {
  auto backup = path;
  backup += ".bak";
  for (int i = 0; std::filesystem::exists(backup); ++i) {
    backup = path;
    backup += fmt::format("_{}.bak", i);
  }
  std::filesystem::rename(path, backup);
}

std::unique_ptr<LockFile> lock(const std::filesystem::path& path) {
  const auto name = path.parent_path() / ('.' + path.filename().string() + ".lock");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  for (;;) {
    auto lock = std::make_unique<LockFile>(name);
    if (lock->state() != LockState::taken) return lock;
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(fmt::format("{} is in use by another process", path.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Whether a process has the file open for writing: the system grants a lease only if no process does. Used
/// only for files without a name, which no process can open meanwhile.
bool has_writer([[maybe_unused]] const Descriptor& file) {
#ifdef F_SETLEASE
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || status.st_nlink != 0) return false;
  if (::fcntl(file.get(), F_SETLEASE, F_RDLCK) != 0) return errno == EAGAIN;
  ::fcntl(file.get(), F_SETLEASE, F_UNLCK);
#endif
  return false;
}

}  // namespace

}  // namespace emissions

const std::vector<std::string>& emissions_columns() {
  static const auto columns = comma_separated(
      "timestamp,project_name,run_id,experiment_id,duration,emissions,emissions_rate,cpu_power,gpu_power,"
      "ram_power,cpu_energy,gpu_energy,ram_energy,energy_consumed,water_consumed,country_name,"
      "country_iso_code,region,cloud_provider,cloud_region,os,python_version,codecarbon_version,cpu_count,"
      "cpu_model,gpu_count,gpu_model,longitude,latitude,ram_total_size,tracking_mode,"
      "cpu_utilization_percent,gpu_utilization_percent,ram_utilization_percent,ram_used_gb,on_cloud,pue,wue");
  return columns;
}

EmissionsFile::EmissionsFile(const std::filesystem::path& path) : path_(std::filesystem::absolute(path)) {
  std::error_code error;
  // Resolves a symbolic link, so replacing the file keeps the link.
  if (auto target = std::filesystem::canonical(path_, error); !error) path_ = std::move(target);
}

EmissionsFile::~EmissionsFile() { rescue(); }

std::optional<EmissionsRow> EmissionsFile::row_of(std::string_view run_id) const {
  const auto text = read_file(path_);
  if (!text) return std::nullopt;
  const auto records = csv_raw_records(*text);
  const auto columns = emissions::columns(records);
  const auto place = columns.empty() ? 0 : emissions::find(records, columns, run_id);
  if (place == 0) return std::nullopt;
  const auto values = csv_fields(records[place]);
  EmissionsRow row;
  for (std::size_t i = 0; i < std::min(columns.size(), values.size()); ++i) row[columns[i]] = values[i];
  return row;
}

void EmissionsFile::write(const EmissionsRow& row) {
  try {
    std::filesystem::create_directories(path_.parent_path());
    const auto lock = emissions::lock(path_);
    rescue();
    auto old = emissions::open(path_, O_RDONLY);
    // A file that can't be read mustn't be replaced.
    if (!old && errno != ENOENT) throw emissions::unreadable(path_);
    struct stat status {};
    const bool is_there = old && ::fstat(old.get(), &status) == 0;
    const auto before = is_there ? emissions::read(old) : std::string();
    if (!before) throw emissions::unreadable(path_);
    const auto records = csv_raw_records(*before);
    const auto columns = emissions::columns(records);
    std::string text;
    if (columns.empty()) {
      if (!records.empty()) emissions::back_up(path_);
      text = fmt::format("{}\n", fmt::join(emissions_columns(), ",")) +
             emissions::line(emissions_columns(), row);
    } else {
      const auto run_id = row.find(std::string_view("run_id"));
      const auto place = emissions::find(records, columns, run_id == row.end() ? "" : run_id->second);
      for (std::size_t i = 0; i < records.size(); ++i)
        if (i == 0 || i != place) {
          text += records[i];
          if (!text.ends_with('\n')) text += '\n';
        } else {
          text += emissions::line(columns, row);
        }
      if (place == 0) text += emissions::line(columns, row);
    }
    write_file(default_file_system(), path_, text);
    if (is_there && !columns.empty()) {
      ::chmod(path_.c_str(), status.st_mode & 07777U);
      replaced_ = std::move(old);
      replaced_size_ = before->size();
      rescue();
    }
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(error.what());
  }
}

/// Copies rows that were written to the replaced file meanwhile.
void EmissionsFile::rescue() noexcept {
  for (int i = 0; i < 100 && replaced_ && emissions::has_writer(replaced_); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  struct stat status {};
  if (!replaced_ || ::fstat(replaced_.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) <= replaced_size_)
    return;
  try {
    const auto added = emissions::read(replaced_, replaced_size_);
    const auto file = emissions::open(path_, O_WRONLY | O_APPEND);
    if (added && file && uninterrupted([&] { return ::write(file.get(), added->data(), added->size()); }) > 0)
      replaced_size_ += added->size();
  } catch (...) {
  }
}

}  // namespace etude::inline v0::detail
