#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

namespace detail {
class EmissionsRun;
}

/// What a training has used so far. Energies are in kWh and have the data centre's share (`pue`) in them.
struct EmissionsTotals {
  ETUDE_STRUCT(EmissionsTotals, (double, duration, "seconds that were measured"),
               (double, emissions, "kg of CO2 equivalents"), (double, cpu_energy, "kWh"),
               (double, gpu_energy, "kWh"), (double, ram_energy, "kWh"), (double, water_consumed, "litres"),
               (double, cpu_utilization, "per cent, times seconds"),
               (double, gpu_utilization, "per cent, times seconds"),
               (double, ram_utilization, "per cent, times seconds"),
               (double, ram_used, "GiB, times seconds"));

  double energy_consumed() const { return cpu_energy + gpu_energy + ram_energy; }
  friend bool operator==(const EmissionsTotals&, const EmissionsTotals&) = default;
};

/// Measures the energy that a training uses and tells its emissions of CO2 in `emissions.csv`, as
/// CodeCarbon's EmissionsTracker does in Hugging Face's CodeCarbonCallback: same columns, same models, same
/// settings, and its own tools read the file. Adds `emissions_kg` and `energy_consumed_kwh` to the last log
/// of a training, so put it before those callbacks that write logs down.
///
/// An option that isn't given is taken from the variable `CODECARBON_NAME`, else from `.codecarbon.config` in
/// the current folder, else from the one in the home folder (section `[codecarbon]`), else it is CodeCarbon's
/// default. The file goes to `output_dir` of the training arguments if nobody says otherwise.
///
/// - CPU: the counters of RAPL where they can be read (else a warning says which can't), or the load of the
///   machine and the processor's TDP: `force_cpu_power`, or what `hardware/cpu_power.csv` of `data_dir` has
///   of the processor, or 4 W a thread.
/// - GPUs: NVIDIA's, by their energy counters, or by their power once a second where they have none.
/// - Memory: CodeCarbon's estimate of the modules that are in the machine.
/// - Intensity: that of the country, as the table of this library has it, or CodeCarbon's own tables in
///   `data_dir`, which know more countries, regions, and clouds. Nothing is looked up over the network: of a
///   training whose country nobody names, the average of the world counts, with a warning.
///
/// A thread measures every `measure_power_secs` and then brings the run's row up to date, so that a process
/// that is killed leaves one. Rows of other runs stay as they are, and processes that share a file wait for
/// each other. A resumed training goes on with its row, from what the row or the checkpoint has, whichever is
/// more: steps that are done twice count twice. CodeCarbon itself begins a row for each start.
///
/// Speaks in the first process of each machine, since it measures the machine; those of other machines than
/// the first begin a row with each start. Throws ArgumentError at TrainBegin for a setting that can't be, and
/// where the file or `data_dir` can't be used. Later faults are warnings.
///
/// Tried with CodeCarbon 3.3: its classes read the file and come to the same figures, and its tracker beside
/// this one measures the same. RAPL and NVML were tried with files and a library made for it, and not on
/// hardware. AMD's GPUs, Apple's chips and CodeCarbon's servers are not supported.
struct CodeCarbonCallback {
  using this_callback = CodeCarbonCallback;
  ETUDE_STRUCT(
      CodeCarbonCallback, (std::string, project_name, "name of the project; else codecarbon", ""),
      (std::string, experiment_id, "id of the experiment; else CodeCarbon's default one", ""),
      (std::string, output_dir, "folder of the file; else output_dir of the training arguments", ""),
      (std::string, output_file, "name of the file; else emissions.csv", ""),
      (std::optional<bool>, save_to_file, "whether to write the file; else yes"),
      (std::optional<double>, measure_power_secs, "seconds from one measurement to the next; else 15"),
      (std::string, tracking_mode, "machine, or process: of CPU and memory only its own share; else machine",
       ""),
      (std::string, country_iso_code, "three letters; if nobody says, the world's average counts", ""),
      (std::string, region, "state, province or zone; needs data_dir", ""),
      (std::string, cloud_provider, "the cloud that the machine stands in; needs data_dir", ""),
      (std::string, cloud_region, "its region", ""),
      (std::optional<double>, force_carbon_intensity_g_co2e_kwh, "g of CO2 equivalents a kWh, in any place"),
      (std::optional<double>, force_cpu_power, "the CPU's TDP in W, in place of RAPL"),
      (std::optional<double>, force_ram_power, "the memory's power in W"),
      (std::optional<bool>, force_mode_cpu_load, "go by the CPU's load even where there is RAPL; else no"),
      (std::optional<bool>, rapl_include_dram, "count RAPL's memory domains, too; else no"),
      (std::optional<bool>, rapl_prefer_psys, "RAPL of the whole platform, and not of the CPU; else no"),
      (std::string, gpu_ids,
       "which GPUs, as 0,1 or by the beginnings of their UUIDs; else all that "
       "CUDA_VISIBLE_DEVICES has",
       ""),
      (std::optional<double>, pue, "energy of the data centre for each kWh of the machine; else 1"),
      (std::optional<double>, wue, "litres of water for each kWh; else 0"),
      (std::string, data_dir, "the folder codecarbon/data of an installed CodeCarbon", ""),
      (std::string, rapl_dir, "where RAPL's counters are; else /sys/class/powercap", ""),
      (std::optional<bool>, log_always, "add the emissions to every log, and not to the last only; else no"),
      (std::string, run_id, "the run's row in the file", ""),
      (EmissionsTotals, totals, "what it has used so far"),
      (std::int64_t, last_logged_step, "the step of the last log that has the emissions", -1));

  /// Whether `report_to=all` takes it: wherever the load of the machine can be read.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
  void on(const Log& e);
  // Not const: it doesn't matter where this stands among those who add tensors.
  void on(SaveBegin& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  bool has_logged_the_last = false;
  detail::NotCopied<detail::EmissionsRun> run = {};

 private:
  void log(const Context& e, const EmissionsTotals& now) const;
  void log_the_last(const Context& e);
  void tell_faults(const Context& e);
};

}  // namespace etude
