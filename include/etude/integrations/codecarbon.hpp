#pragma once

#ifndef ETUDE_CODECARBON
#error "etude/integrations/codecarbon.hpp needs a library: link etude::codecarbon"
#endif

#include <cstdint>
#include <optional>
#include <string>

#include "etude/events.hpp"
#include "etude/integrations/shared/not_copied.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

namespace detail {
class EmissionsRun;
}

/// A training's consumption so far. Energies are in kWh and include the data centre's share (`pue`).
struct EmissionsTotals {
  ETUDE_STRUCT(EmissionsTotals, (double, duration, "seconds that were measured"),
               (double, emissions, "kg of CO2 equivalents"), (double, cpu_energy, "kWh"),
               (double, gpu_energy, "kWh"), (double, ram_energy, "kWh"), (double, water_consumed, "litres"),
               (double, cpu_utilization, "percent times seconds"),
               (double, gpu_utilization, "percent times seconds"),
               (double, ram_utilization, "percent times seconds"), (double, ram_used, "GiB times seconds"));

  double energy_consumed() const { return cpu_energy + gpu_energy + ram_energy; }
  friend bool operator==(const EmissionsTotals&, const EmissionsTotals&) = default;
};

/// Measures the energy that a training uses and writes its CO2 emissions to `emissions.csv`, as CodeCarbon's
/// EmissionsTracker does in Hugging Face's CodeCarbonCallback: it uses the same columns, models and settings,
/// and CodeCarbon's tools can read the file. Adds `emissions_kg` and `energy_consumed_kwh` to the last log of
/// a training, so put it before the callbacks that write logs.
///
/// An option that isn't given is taken from the variable `CODECARBON_NAME`, or else from `.codecarbon.config`
/// (section `[codecarbon]`) in the current folder, or else from the one in the home folder; otherwise
/// CodeCarbon's default applies. The file goes to `output_dir` of the training arguments by default.
///
/// - CPU: RAPL's counters if they can be read (otherwise a warning names the unreadable one), otherwise the
///   machine's load and the processor's TDP: `force_cpu_power`, or the processor's entry in
///   `hardware/cpu_power.csv` of `data_dir`, or 4 W per thread.
/// - GPUs: NVIDIA's energy counters, or the power, sampled once a second, on GPUs without such a counter.
/// - Memory: CodeCarbon's estimate for the installed modules.
/// - Carbon intensity: the country's, from this library's table or from CodeCarbon's own tables in
/// `data_dir`, which have more countries, regions, and clouds. Nothing is looked up over the network: without
/// a country the world average is used, with a warning.
///
/// A thread measures every `measure_power_secs` and then updates the run's row, so even a killed process
/// leaves a row. Rows of other runs don't change, and processes that share a file wait for each other. A
/// resumed training continues its row from the row's or the checkpoint's totals, whichever are larger:
/// repeated steps count twice. CodeCarbon itself begins a row at each start. A trial's row has the search as
/// its project and the trial as its experiment, unless the options name others.
///
/// Runs in the first process of each machine, since it measures the machine; on machines other than the
/// first, each start begins a row. Throws ArgumentError at TrainBegin for an invalid setting, and if the file
/// or `data_dir` can't be used. Later errors are warnings.
///
/// Tested with CodeCarbon 3.3: its classes read the file and compute the same figures, and its tracker
/// running in parallel measures the same. RAPL and NVML were tested with simulated files and a simulated
/// library, not on hardware. AMD's GPUs, Apple's chips and CodeCarbon's servers are not supported.
struct CodeCarbonCallback {
  ETUDE_STRUCT(
      CodeCarbonCallback, (std::string, project_name, "name of the project; else codecarbon", ""),
      (std::string, experiment_id, "id of the experiment; else CodeCarbon's default one", ""),
      (std::string, output_dir, "folder of the file; else output_dir of the training arguments", ""),
      (std::string, output_file, "name of the file; else emissions.csv", ""),
      (std::optional<bool>, save_to_file, "write the file; else yes"),
      (std::optional<double>, measure_power_secs, "seconds between measurements; else 15"),
      (std::string, tracking_mode, "machine, or process for this process's CPU and memory; else machine", ""),
      (std::string, country_iso_code, "three letters; else the world average applies", ""),
      (std::string, region, "state, province or zone; needs data_dir", ""),
      (std::string, cloud_provider, "the machine's cloud provider; needs data_dir", ""),
      (std::string, cloud_region, "its region", ""),
      (std::optional<double>, force_carbon_intensity_g_co2e_kwh, "g of CO2 equivalents per kWh, anywhere"),
      (std::optional<double>, force_cpu_power, "the CPU's TDP in W, in place of RAPL"),
      (std::optional<double>, force_ram_power, "the memory's power in W"),
      (std::optional<bool>, force_mode_cpu_load, "use the CPU's load even with RAPL; else no"),
      (std::optional<bool>, rapl_include_dram, "also count RAPL's memory domains; else no"),
      (std::optional<bool>, rapl_prefer_psys, "RAPL of the whole platform instead of the CPU; else no"),
      (std::string, gpu_ids,
       "GPUs to measure, as 0,1 or by the beginnings of their UUIDs; else all in "
       "CUDA_VISIBLE_DEVICES",
       ""),
      (std::optional<double>, pue, "energy of the data centre per kWh of the machine; else 1"),
      (std::optional<double>, wue, "litres of water per kWh; else 0"),
      (std::string, data_dir, "the folder codecarbon/data of an installed CodeCarbon", ""),
      (std::string, rapl_dir, "where RAPL's counters are; else /sys/class/powercap", ""),
      (std::optional<bool>, log_always, "add the emissions to every log, not only the last; else no"));
  struct State {
    ETUDE_STRUCT(State, (std::string, run_id, "the run's row in the file", ""),
                 (EmissionsTotals, totals, "its consumption so far"),
                 (std::int64_t, last_logged_step, "step of the last log with emissions", -1));
  };
  State state = {};

  /// Whether `report_to=all` includes this callback: true if the machine's load can be read.
  static bool is_available();

  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const EpochEnd& e);
  void on(const Log& e);
  // Takes `SaveBegin&`, since a handler of `const SaveBegin&` would have to come after all callbacks that add
  // tensors.
  void on(SaveBegin& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const Stop& e);
  void on(const TrainError& e);
  void on(const TrainEnd& e);

  bool has_logged_the_last = false;
  detail::NotCopied<detail::EmissionsRun> open_run = {};

 private:
  void log(const Context& e, const EmissionsTotals& now) const;
  void log_the_last(const Context& e);
  void report_faults(const Context& e);
};

}  // namespace etude::inline v0
