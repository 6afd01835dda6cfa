#include "etude/integrations/codecarbon/machine.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include <algorithm>
#include <array>
#include <boost/algorithm/string/erase.hpp>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "etude/base/lower_case.hpp"
#include "etude/base/read_file.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/integrations/shared/processor.hpp"
#include "etude/reflect/read_text.hpp"

namespace etude::inline v0::detail {
namespace machine {

namespace {

double gib_of(std::string_view meminfo, std::string_view name) {
  const auto values = values_in(meminfo, name);
  return values.empty() ? 0 : std::strtod(values.front().c_str(), nullptr) / (1024 * 1024);
}

std::set<std::string> words(const std::string& text) {
  std::string spaced = lower_case(text);
  for (auto& c : spaced)
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) c = ' ';
  std::istringstream stream(spaced);
  std::set<std::string> found;
  for (std::string word; stream >> word;) found.insert(word);
  return found;
}

std::int64_t memory_modules(double gib) {
  if (gib <= 2) return 1;
  if (gib <= 16) return 2;
  if (gib <= 64) return 4;
  if (gib <= 128) return 8;
  double size = 4;
  while (size < 128 && size * 2 <= gib / 8) size *= 2;
  return std::min<std::int64_t>(static_cast<std::int64_t>(std::ceil(gib / size)), 32);
}

}  // namespace

}  // namespace machine

std::optional<CpuTimes> cpu_times(std::string_view proc_stat) {
  std::istringstream line{std::string(proc_stat.substr(0, proc_stat.find('\n')))};
  std::string name;
  // user nice system idle iowait irq softirq steal; user and nice already include guests.
  std::array<double, 8> ticks{};
  line >> name;
  std::size_t count = 0;
  while (count < ticks.size() && line >> ticks[count]) ++count;
  if (name != "cpu" || count < 4) return std::nullopt;
  CpuTimes times;
  for (const double part : ticks) times.total += part;
  times.busy = times.total - ticks[3] - ticks[4];
  return times;
}

std::optional<CpuTimes> read_cpu_times() { return cpu_times(read_file("/proc/stat").value_or("")); }

double cpu_load(const CpuTimes& before, const CpuTimes& now) {
  const double total = now.total - before.total;
  return total > 0 ? std::clamp((now.busy - before.busy) / total * 100, 0.0, 100.0) : 0;
}

double cpu_power(double tdp, double load) { return tdp * (0.1 + 0.9 * std::pow(load / 100, 3)); }

std::int64_t count_threads() { return std::max(::sysconf(_SC_NPROCESSORS_ONLN), 0L); }

std::optional<double> find_tdp(const std::string& model, std::string_view table) {
  std::vector<std::pair<std::string, std::optional<double>>> rows;
  for (const auto& record : csv_records(table)) {
    const auto fields = csv_fields(record);
    if (fields.size() >= 2) rows.emplace_back(fields[0], read_number<double>(fields[1]));
  }
  if (!rows.empty()) rows.erase(rows.begin());
  const auto of_name = [&](const std::string& name) -> std::optional<double> {
    for (const auto& [other, tdp] : rows)
      if (lower_case(other) == name) return tdp;
    return std::nullopt;
  };
  if (const auto found = of_name(lower_case(model))) return found;

  auto plain = model;
  boost::erase_all(plain, "(R)");
  if (const auto at = plain.find(" CPU @ "); at != plain.npos && at > 0) plain.resize(at);
  boost::erase_all(plain, " CPU");
  static const std::regex frequency(" @\\s*[0-9]+\\.[0-9]+GHz");
  plain = std::regex_replace(plain, frequency, "");
  if (const auto found = of_name(lower_case(plain))) return found;

  const auto words = machine::words(plain);
  std::optional<double> only;
  std::int64_t count = 0;
  for (const auto& [name, tdp] : rows) {
    const auto others = machine::words(name);
    if (words.empty() || others.empty() ||
        !(std::ranges::includes(words, others) || std::ranges::includes(others, words)))
      continue;
    only = tdp;
    ++count;
  }
  return count == 1 ? only : std::nullopt;
}

MemoryInfo memory_info(std::string_view meminfo) {
  const double total = machine::gib_of(meminfo, "MemTotal");
  return {.total_gib = total, .used_gib = std::max(total - machine::gib_of(meminfo, "MemAvailable"), 0.0)};
}

MemoryInfo read_memory_info() { return memory_info(read_file("/proc/meminfo").value_or("")); }

double ram_power(double gib, bool is_arm) {
  const double module = is_arm ? 1.5 : 5, least = is_arm ? 3 : 10;
  const auto modules = machine::memory_modules(gib);
  const auto among = [&](std::int64_t first, std::int64_t last) {
    return static_cast<double>(std::clamp(modules - first, std::int64_t{0}, last - first));
  };
  return std::max(least,
                  module * (among(0, 4) + 0.9 * among(4, 8) + 0.8 * among(8, 16) + 0.7 * among(16, 32)));
}

ProcessUse read_process_use() {
  struct Process {
    int parent = 0;
    double cpu_seconds = 0, memory_gib = 0;
  };
  std::map<int, Process> processes;
  const double ticks_a_second = static_cast<double>(::sysconf(_SC_CLK_TCK)),
               gib_a_page = static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1024.0 * 1024 * 1024);
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const auto id = read_number<int>(entry->path().filename().string());
    if (!id) continue;
    const auto text = read_file(entry->path() / "stat").value_or("");
    const auto name_end = text.rfind(')');  // the name may contain anything
    if (name_end == text.npos) continue;
    std::istringstream rest(text.substr(name_end + 1));
    std::vector<std::string> fields;
    for (std::string field; rest >> field;) fields.push_back(field);
    if (fields.size() < 22) continue;
    const auto number = [&](std::size_t i) { return read_number<double>(fields[i]).value_or(0); };
    processes[*id] = {.parent = static_cast<int>(number(1)),
                      .cpu_seconds = (number(11) + number(12)) / ticks_a_second,
                      .memory_gib = number(21) * gib_a_page};
  }
  ProcessUse use;
  std::vector<int> open{::getpid()};
  while (!open.empty()) {
    const int id = open.back();
    open.pop_back();
    const auto found = processes.find(id);
    if (found == processes.end() || use.cpu_seconds.contains(id)) continue;
    use.cpu_seconds[id] = found->second.cpu_seconds;
    use.memory_gib += found->second.memory_gib;
    for (const auto& [child, process] : processes)
      if (process.parent == id) open.push_back(child);
  }
  return use;
}

double cpu_seconds_since(const ProcessUse& before, const ProcessUse& now) {
  double seconds = 0;
  for (const auto& [id, used] : now.cpu_seconds)
    if (const auto found = before.cpu_seconds.find(id); found != before.cpu_seconds.end())
      seconds += std::max(used - found->second, 0.0);
  return seconds;
}

std::string platform_name() {
  auto text = system_name();
#ifdef __GLIBC__
  text += fmt::format("-with-glibc{}", ::gnu_get_libc_version());
#endif
  return text;
}

bool is_arm_machine() {
  struct utsname name {};
  if (::uname(&name) != 0) return false;
  const auto machine = lower_case(name.machine);
  return machine.find("arm") != machine.npos || machine.find("aarch") != machine.npos;
}

}  // namespace etude::inline v0::detail
