#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/integrations/codecarbon/callback.hpp"
#include "etude/integrations/codecarbon/gpus.hpp"
#include "etude/integrations/codecarbon/machine.hpp"
#include "etude/integrations/codecarbon/rapl.hpp"
#include "etude/integrations/shared/processor.hpp"

namespace etude::detail {

/// Measures what the machine uses, or this process of it, as the options of a CodeCarbonCallback say that are
/// complete (CodeCarbonSettings).
class EnergyMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  EnergyMeter(const CodeCarbonCallback& options, std::unique_ptr<Gpus> gpus, Time now);

  /// To be called about once a second: looks at what is known of this moment only.
  void sample(Time now);

  /// What was used since it was last called; without emissions, water, and the data centre's share.
  EmissionsTotals measure(Time now);

  /// How the CPU is measured, in words.
  std::string cpu_method() const;
  const std::string& cpu_model() const { return processor_.model; }
  const GpuMeter& gpus() const { return gpus_; }
  double ram_total_gib() const { return ram_total_gib_; }
  double tdp() const { return tdp_; }

  /// What has gone wrong, or had to be assumed, since this was last asked.
  std::vector<std::string> take_faults();

 private:
  void find_tdp_of_processor(const CodeCarbonCallback& options);
  double take_cpu_kwh(double seconds);

  bool of_process_ = false;
  std::optional<double> force_ram_power_;
  ProcessorFacts processor_;
  double tdp_ = 0;
  std::optional<Rapl> rapl_;
  GpuMeter gpus_;
  double ram_total_gib_ = 0;
  Time measured_, sampled_;
  std::optional<CpuTimes> times_;
  ProcessUse use_;
  double model_joules_ = 0;  // of the CPU, by its load
  EmissionsTotals since_;
  std::vector<std::string> faults_;
};

}  // namespace etude::detail

#ifndef ETUDE_COMPILED
#include "etude/integrations/codecarbon/impl/energy_meter.ipp"
#endif
