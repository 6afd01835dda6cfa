#include "etude/integrations/codecarbon/energy_meter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "etude/integrations/codecarbon/intensity.hpp"
#include "etude/integrations/shared/environment.hpp"

namespace etude::inline v0::detail {

EnergyMeter::EnergyMeter(const CodeCarbonCallback& options, std::unique_ptr<Gpus> gpus, Time now)
    : of_process_(options.tracking_mode == "process"),
      force_ram_power_(options.force_ram_power),
      processor_(read_processor_info()),
      gpus_(std::move(gpus),
            options.gpu_ids.empty() ? environment("CUDA_VISIBLE_DEVICES") : std::optional(options.gpu_ids)),
      ram_total_gib_(read_memory_info().total_gib) {
  if (!options.force_cpu_power && !options.force_mode_cpu_load.value_or(false)) {
    rapl_.emplace(options.rapl_dir, Rapl::Options{.include_dram = options.rapl_include_dram.value_or(false),
                                                  .prefer_psys = options.rapl_prefer_psys.value_or(false)});
    if (!rapl_->fault().empty())
      faults_.push_back(rapl_->fault() + "; the CPU is measured by its load instead");
    if (!*rapl_) rapl_.reset();
  }
  find_tdp_of_processor(options);
  times_ = read_cpu_times();
  if (of_process_) use_ = read_process_use();
  measured_ = sampled_ = now;
}

void EnergyMeter::find_tdp_of_processor(const CodeCarbonCallback& options) {
  if (options.force_cpu_power) {
    tdp_ = *options.force_cpu_power;
    return;
  }
  std::optional<double> found;
  if (!options.data_dir.empty()) {
    const auto path = std::filesystem::path(options.data_dir) / "hardware" / "cpu_power.csv";
    found = find_tdp(processor_.model, read_codecarbon_table(path));
  }
  if (found) {
    tdp_ = *found * static_cast<double>(processor_.sockets);
    return;
  }
  constexpr double watts_a_thread = 4, watts_of_unknown = 85;
  const auto threads = count_threads();
  tdp_ = threads > 0 ? watts_a_thread * static_cast<double>(threads) : watts_of_unknown;
  if (!rapl_)
    faults_.push_back(
        fmt::format("the TDP of the CPU ({}) isn't known, {} W are assumed: set force_cpu_power{}",
                    processor_.model.empty() ? "of no name" : processor_.model, tdp_,
                    options.data_dir.empty() ? " or data_dir" : ""));
}

std::string EnergyMeter::cpu_method() const {
  if (rapl_) return fmt::format("RAPL ({})", fmt::join(rapl_->names(), ", "));
  return fmt::format("load of the {}, {} W", of_process_ ? "process" : "machine", tdp_);
}

void EnergyMeter::sample(Time now) {
  const double seconds = std::chrono::duration<double>(now - std::exchange(sampled_, now)).count();
  const auto times = read_cpu_times();
  const double load = times && times_ ? cpu_load(*times_, *times) : 0;
  times_ = times;
  const auto memory = read_memory_info();
  if (!of_process_) model_joules_ += cpu_power(tdp_, load) * seconds;
  since_.cpu_utilization += load * seconds;
  since_.gpu_utilization += gpus_.utilization() * seconds;
  since_.ram_utilization += memory.used_percent() * seconds;
  since_.ram_used += memory.used_gib * seconds;
  gpus_.sample();
}

double EnergyMeter::take_cpu_kwh(double seconds) {
  constexpr double joules_a_kwh = 3.6e6;
  const double by_load = std::exchange(model_joules_, 0) / joules_a_kwh;
  if (rapl_) {
    if (const auto kwh = rapl_->take_kwh()) return *kwh;
    faults_.push_back(
        "RAPL's counters couldn't be read for a while; the CPU was measured by its load meanwhile");
  }
  return std::min(by_load, tdp_ * seconds / joules_a_kwh);
}

EmissionsTotals EnergyMeter::measure(Time now) {
  const double seconds = std::chrono::duration<double>(now - std::exchange(measured_, now)).count();
  double ram_gib = ram_total_gib_;
  if (of_process_) {
    const auto use = read_process_use();
    model_joules_ +=
        tdp_ * cpu_seconds_since(use_, use) / static_cast<double>(std::max<std::int64_t>(count_threads(), 1));
    use_ = use;
    ram_gib = use.memory_gib;
  }
  sample(now);
  auto result = std::exchange(since_, {});
  result.duration = seconds;
  result.cpu_energy = take_cpu_kwh(seconds);
  result.gpu_energy = gpus_.take_kwh(seconds);
  result.ram_energy = force_ram_power_.value_or(ram_power(ram_gib, is_arm_machine())) / 1000 * seconds / 3600;
  return result;
}

std::vector<std::string> EnergyMeter::take_faults() {
  auto faults = std::exchange(faults_, {});
  for (auto& fault : gpus_.take_faults()) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace etude::inline v0::detail
