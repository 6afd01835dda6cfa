#include "etude/integrations/codecarbon/emissions_run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/uuid/random_generator.hpp>
#include <boost/uuid/uuid_io.hpp>
#include <chrono>
#include <ctime>
#include <exception>
#include <filesystem>
#include <string_view>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/formats/csv_text.hpp"
#include "etude/integrations/shared/environment.hpp"
#include "etude/reflect/read_text.hpp"
#include "etude/version.hpp"

namespace etude::inline v0::detail {
namespace emissions {

namespace {

void add(EmissionsTotals& sum, const EmissionsTotals& part) {
  std::vector<double> values;
  for_each_field(part, [&](std::string_view, const FieldDoc&, double value) { values.push_back(value); });
  auto value = values.begin();
  for_each_field(sum, [&](std::string_view, const FieldDoc&, double& total) { total += *value++; });
}

}  // namespace

}  // namespace emissions

EmissionsTotals totals_of(const EmissionsRow& row) {
  const auto number = [&](std::string_view column) {
    const auto found = row.find(column);
    return found == row.end() ? 0 : read_number<double>(found->second).value_or(0);
  };
  EmissionsTotals totals;
  for_each_field(totals, [&](std::string_view name, const FieldDoc&, double& sum) {
    // The row has the means of these totals.
    if (name.ends_with("_utilization"))
      sum = number(std::string(name) + "_percent") * totals.duration;
    else
      sum = name == "ram_used" ? number("ram_used_gb") * totals.duration : number(name);
  });
  return totals;
}

std::string random_uuid() { return to_string(boost::uuids::random_generator()()); }

EmissionsRun::EmissionsRun(CodeCarbonCallback options, std::string run_id, const EmissionsTotals& before)
    : options_(std::move(options)),
      intensity_(carbon_intensity({.country_iso_code = options_.country_iso_code,
                                   .region = options_.region,
                                   .cloud_provider = options_.cloud_provider,
                                   .cloud_region = options_.cloud_region,
                                   .force_g_per_kwh = options_.force_carbon_intensity_g_co2e_kwh},
                                  options_.data_dir)),
      meter_(options_, open_nvml(), std::chrono::steady_clock::now()),
      totals_(before) {
  if (!intensity_.warning.empty()) report(intensity_.warning);
  for (const auto& fault : meter_.take_faults()) report(fault);
  const bool on_cloud = !intensity_.cloud_provider.empty() || !intensity_.cloud_region.empty();
  info_ = {{"project_name", options_.project_name},
           {"run_id", std::move(run_id)},
           {"experiment_id", options_.experiment_id},
           {"country_name", intensity_.country_name},
           {"country_iso_code", intensity_.country_iso_code},
           {"region", intensity_.region},
           {"cloud_provider", intensity_.cloud_provider},
           {"cloud_region", intensity_.cloud_region},
           {"os", platform_name()},
           {"codecarbon_version", fmt::format("3.3-compatible (etude {}.{}.{})", ETUDE_VERSION / 10000,
                                              ETUDE_VERSION / 100 % 100, ETUDE_VERSION % 100)},
           {"cpu_count", fmt::format("{}", count_threads())},
           {"cpu_model", meter_.cpu_model()},
           {"gpu_count", fmt::format("{}", meter_.gpus().count())},
           {"gpu_model", meter_.gpus().model()},
           {"ram_total_size", csv_number(meter_.ram_total_gib())},
           {"tracking_mode", options_.tracking_mode},
           {"on_cloud", on_cloud ? "Y" : "N"},
           {"pue", csv_number(options_.pue.value_or(1))},
           {"wue", csv_number(options_.wue.value_or(0))}};
  if (options_.save_to_file.value_or(true)) {
    file_.emplace(std::filesystem::path(options_.output_dir) / options_.output_file);
    if (const auto found = file_->row_of(info_["run_id"]))
      if (const auto there = totals_of(*found); there.duration > totals_.duration) totals_ = there;
    try {
      file_->write(row(totals_));
    } catch (const Error& error) {
      throw ArgumentError(fmt::format("output_dir is {}: {}", options_.output_dir, error.what()));
    }
    is_written_ = true;
  }
  thread_ = make_thread_shared<std::thread>([this] { run(); });
}

EmissionsRun::~EmissionsRun() { finish(); }

void EmissionsRun::run() {
  using Clock = std::chrono::steady_clock;
  const auto second = std::chrono::duration_cast<Clock::duration>(std::chrono::seconds(1));
  const auto interval = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(options_.measure_power_secs.value_or(15), 1e6)));
  auto next_sample = Clock::now() + second, next_measurement = Clock::now() + interval;
  std::unique_lock lock(mutex_);
  while (!changed_->wait_until(lock, std::min(next_sample, next_measurement), [&] { return stops_; })) {
    const auto now = Clock::now();
    if (now >= next_measurement) {
      lock.unlock();
      measure();
      write();
      lock.lock();
      next_measurement = std::max(next_measurement + interval, now);
      next_sample = now + second;
    } else if (now >= next_sample) {
      lock.unlock();
      {
        const std::lock_guard sampling(meter_mutex_);
        meter_.sample(Clock::now());  // not `now`: another thread may have measured since
      }
      lock.lock();
      next_sample = std::max(next_sample + second, now);
    }
  }
}

std::unique_lock<std::mutex> EmissionsRun::locked(std::mutex& mutex) const {
  return mark_.is_in_child() ? std::unique_lock<std::mutex>() : std::unique_lock(mutex);
}

EmissionsTotals EmissionsRun::measure() {
  if (mark_.is_in_child()) return totals_;
  const std::lock_guard measuring(meter_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (is_finished_) return totals_;
  }
  auto part = meter_.measure(std::chrono::steady_clock::now());
  const double pue = options_.pue.value_or(1);
  part.cpu_energy *= pue;
  part.gpu_energy *= pue;
  part.ram_energy *= pue;
  part.water_consumed = options_.wue.value_or(0) * part.energy_consumed();
  part.emissions = intensity_.kg_per_kwh * part.energy_consumed();
  const std::lock_guard lock(mutex_);
  emissions::add(totals_, part);
  for (const auto& fault : meter_.take_faults()) report(fault);
  return totals_;
}

EmissionsTotals EmissionsRun::totals() const {
  const auto reading = locked(mutex_);
  return totals_;
}

void EmissionsRun::finish() {
  if (mark_.is_in_child()) return;
  {
    const std::lock_guard lock(mutex_);
    if (is_finished_) return;
    stops_ = true;
  }
  changed_->notify_all();
  thread_->join();
  measure();
  {
    const std::lock_guard lock(mutex_);
    is_finished_ = true;
  }
  write();
}

void EmissionsRun::write() noexcept {
  if (!file_) return;
  try {
    is_written_ = false;
    file_->write(row(totals()));
    is_written_ = true;
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    report(fmt::format("emissions can't be written: {}", error.what()));
  }
}

EmissionsRow EmissionsRun::row(const EmissionsTotals& totals) const {
  auto row = info_;
  const auto set = [&](const char* column, double value) { row[column] = csv_number(value); };
  const auto mean = [&](double sum) { return totals.duration > 0 ? sum / totals.duration : 0; };
  constexpr double watt_seconds_a_kwh = 3.6e6;
  row["timestamp"] = fmt::format("{:%Y-%m-%dT%H:%M:%S}", local_time(std::time(nullptr)));
  set("duration", totals.duration);
  set("emissions", totals.emissions);
  set("emissions_rate", mean(totals.emissions));
  set("cpu_power", mean(totals.cpu_energy) * watt_seconds_a_kwh);
  set("gpu_power", mean(totals.gpu_energy) * watt_seconds_a_kwh);
  set("ram_power", mean(totals.ram_energy) * watt_seconds_a_kwh);
  set("cpu_energy", totals.cpu_energy);
  set("gpu_energy", totals.gpu_energy);
  set("ram_energy", totals.ram_energy);
  set("energy_consumed", totals.energy_consumed());
  set("water_consumed", totals.water_consumed);
  const auto percent = [&](double sum) { return std::min(mean(sum), 100.0); };  // sums are rounded
  set("cpu_utilization_percent", percent(totals.cpu_utilization));
  set("gpu_utilization_percent", percent(totals.gpu_utilization));
  set("ram_utilization_percent", percent(totals.ram_utilization));
  set("ram_used_gb", mean(totals.ram_used));
  return row;
}

void EmissionsRun::report(const std::string& fault) {
  if (reported_.insert(fault).second) faults_.push_back(fault);
}

std::vector<std::string> EmissionsRun::take_faults() {
  const auto reading = locked(mutex_);
  return std::exchange(faults_, {});
}

std::string EmissionsRun::description() const {
  const auto reading = locked(meter_mutex_);
  return fmt::format("CPU by {}; memory by {}; {}; {:.1f} g/kWh ({})", meter_.cpu_method(),
                     options_.force_ram_power ? "force_ram_power" : "the modules that it is likely made of",
                     meter_.gpus().empty() ? "no GPU" : meter_.gpus().model(), intensity_.kg_per_kwh * 1000,
                     intensity_.source);
}

std::string EmissionsRun::outcome() const {
  const auto totals = this->totals();
  return fmt::format("{:.6g} kWh and {:.6g} kg of CO2 equivalents in {:.1f} s{}", totals.energy_consumed(),
                     totals.emissions, totals.duration,
                     !file_        ? ""
                     : is_written_ ? "; written to " + file_->path().string()
                                   : "; the last row could not be written to " + file_->path().string());
}

}  // namespace etude::inline v0::detail
