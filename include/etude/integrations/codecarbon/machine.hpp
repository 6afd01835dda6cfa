#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

/// What Linux tells of the machine, and CodeCarbon's models of what it draws.
namespace etude::detail {

/// The processors' time since the machine was started, in ticks.
struct CpuTimes {
  double busy = 0, total = 0;
};

/// The first line of /proc/stat.
std::optional<CpuTimes> cpu_times(std::string_view proc_stat);
std::optional<CpuTimes> read_cpu_times();

/// The share of the time between the two that they were busy, in per cent.
double cpu_load(const CpuTimes& before, const CpuTimes& now);

/// W that a processor draws at a load in per cent: a tenth of its TDP, and the rest with the load's cube.
double cpu_power(double tdp, double load);

std::int64_t count_threads();

/// The TDP in W of a processor in a table of CodeCarbon's (columns Name and TDP): one whose name is the same,
/// or is when "(R)", "CPU" and the frequency are left out, or else the only one whose words are all among
/// those of the model, or the other way round.
std::optional<double> find_tdp(const std::string& model, std::string_view table);

struct MemoryFacts {
  double total_gib = 0, used_gib = 0;

  double used_percent() const { return total_gib > 0 ? used_gib / total_gib * 100 : 0; }
};
/// /proc/meminfo.
MemoryFacts memory_facts(std::string_view meminfo);
MemoryFacts read_memory_facts();

/// W that so much memory draws: so much for each of the modules that it is likely made of, and less for each
/// of many.
double ram_power(double gib, bool is_arm);

/// What this process and its children have used: seconds of processors' time, by process, and memory.
struct ProcessUse {
  std::map<int, double> cpu_seconds;
  double memory_gib = 0;
};
ProcessUse read_process_use();

/// The seconds that the processes of `now` have used since `before`.
double cpu_seconds_since(const ProcessUse& before, const ProcessUse& now);

/// The system, as Python's `platform.platform()` says it.
std::string platform_name();

bool is_arm_machine();

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/machine.ipp"
#endif
