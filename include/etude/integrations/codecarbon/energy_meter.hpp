#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "etude/integrations/codecarbon.hpp"
#include "etude/integrations/codecarbon/gpus.hpp"
#include "etude/integrations/codecarbon/machine.hpp"
#include "etude/integrations/codecarbon/rapl.hpp"
#include "etude/integrations/shared/processor.hpp"

namespace etude::inline v0::detail {

/// Measures the machine's energy, or this process's share, according to the complete options of a
/// CodeCarbonCallback (CodeCarbonSettings).
class EnergyMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  EnergyMeter(const CodeCarbonCallback& options, std::unique_ptr<Gpus> gpus, Time now);

  /// Samples instantaneous values; call it about once a second.
  void sample(Time now);

  /// The consumption since the previous call, without emissions, water, and the data centre's share.
  EmissionsTotals measure(Time now);

  /// How the CPU is measured, as text.
  std::string cpu_method() const;
  const std::string& cpu_model() const { return processor_.model; }
  const GpuMeter& gpus() const { return gpus_; }
  double ram_total_gib() const { return ram_total_gib_; }
  double tdp() const { return tdp_; }

  /// Errors and assumptions since the previous call.
  std::vector<std::string> take_faults();

 private:
  void find_tdp_of_processor(const CodeCarbonCallback& options);
  double take_cpu_kwh(double seconds);

  bool of_process_ = false;
  std::optional<double> force_ram_power_;
  ProcessorInfo processor_;
  double tdp_ = 0;
  std::optional<Rapl> rapl_;
  GpuMeter gpus_;
  double ram_total_gib_ = 0;
  Time measured_, sampled_;
  std::optional<CpuTimes> times_;
  ProcessUse use_;
  double model_joules_ = 0;  // the CPU's energy, estimated from its load
  EmissionsTotals since_;
  std::vector<std::string> faults_;
};

}  // namespace etude::inline v0::detail
