#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// Linux's information about the machine, and CodeCarbon's models of its power.
namespace etude::inline v0::detail {

/// The processors' time since boot, in ticks.
struct CpuTimes {
  double busy = 0, total = 0;
};

/// Parses the first line of /proc/stat.
std::optional<CpuTimes> cpu_times(std::string_view proc_stat);
std::optional<CpuTimes> read_cpu_times();

/// The percentage of the time between the two readings during which the processors were busy.
double cpu_load(const CpuTimes& before, const CpuTimes& now);

/// The power in W of a processor at a load in percent: a tenth of its TDP when idle; the rest grows with the
/// cube of the load.
double cpu_power(double tdp, double load);

std::int64_t count_threads();

/// The TDP in W of a processor in one of CodeCarbon's tables (columns Name and TDP). The entry's name equals
/// the model's, exactly or without "(R)", "CPU" and the frequency; or it is the only one that contains all
/// words of the model's name or whose words the model's name contains.
std::optional<double> find_tdp(const std::string& model, std::string_view table);

struct MemoryInfo {
  double total_gib = 0, used_gib = 0;

  double used_percent() const { return total_gib > 0 ? used_gib / total_gib * 100 : 0; }
};
/// Parses /proc/meminfo.
MemoryInfo memory_info(std::string_view meminfo);
MemoryInfo read_memory_info();

/// The power in W of this much memory: a fixed amount for each of its probable modules, and less per module
/// if there are many.
double ram_power(double gib, bool is_arm);

/// Resources used by this process and its children: CPU seconds by process id, and memory.
struct ProcessUse {
  std::map<int, double> cpu_seconds;
  double memory_gib = 0;
};
ProcessUse read_process_use();

/// The CPU seconds that the processes of `now` have used since `before`.
double cpu_seconds_since(const ProcessUse& before, const ProcessUse& now);

/// The system, as Python's `platform.platform()` formats it.
std::string platform_name();

bool is_arm_machine();

}  // namespace etude::inline v0::detail
