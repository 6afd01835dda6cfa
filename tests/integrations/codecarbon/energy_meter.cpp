#include "etude/integrations/codecarbon/energy_meter.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace integrations_codecarbon_energy_meter_test {

using doctest::Approx;
using etude::CodeCarbonCallback;
using etude::detail::EnergyMeter;
using namespace std::chrono_literals;

const EnergyMeter::Time begin = std::chrono::steady_clock::now();

CodeCarbonCallback options(const toy::Folder& rapl) {
  return {.tracking_mode = "machine", .force_ram_power = 18, .rapl_dir = rapl};
}

void set_counter(const toy::Folder& rapl, const std::string& microjoules) {
  std::filesystem::create_directories(rapl / "intel-rapl:0");
  toy::write_text(rapl / "intel-rapl:0/name", "package-0\n");
  toy::write_text(rapl / "intel-rapl:0/max_energy_range_uj", "262143328850\n");
  toy::write_text(rapl / "intel-rapl:0/energy_uj", microjoules);
}

TEST_CASE("with RAPL its counters give the CPU's energy, and memory draws constant power") {
  const toy::Folder rapl;
  set_counter(rapl, "1000000");
  EnergyMeter meter(options(rapl), nullptr, begin);
  CHECK(meter.cpu_method() == "RAPL (package-0)");
  set_counter(rapl, "101000000");
  meter.sample(begin + 1s);
  const auto first = meter.measure(begin + 2s);
  CHECK(first.duration == Approx(2));
  CHECK(first.cpu_energy == Approx(100 * 2.77778e-7));
  CHECK(first.ram_energy == Approx(18.0 / 1000 * 2 / 3600));
  CHECK(first.gpu_energy == 0);
  CHECK(first.ram_used > 0);
  CHECK(first.emissions == 0);
  CHECK(meter.measure(begin + 3s).cpu_energy == 0);
  CHECK(meter.take_faults().empty());
}

TEST_CASE("a time without readable RAPL counters is estimated by the load, and that is reported") {
  const toy::Folder rapl;
  set_counter(rapl, "1000000");
  EnergyMeter meter(options(rapl), nullptr, begin);
  set_counter(rapl, "no number");
  const double tdp = meter.tdp();
  const auto away = meter.measure(begin + 10s).cpu_energy * 3.6e6 / 10;
  CHECK(away >= 0.0999 * tdp);
  CHECK(away <= 1.0001 * tdp);
  const auto faults = meter.take_faults();
  CHECK(faults.size() == 1);
  CHECK(toy::contains(faults.at(0), "RAPL"));
}

TEST_CASE("counters that are unreadable from the start are reported, and the load is used") {
  const toy::Folder rapl;
  set_counter(rapl, "secret");
  EnergyMeter meter(options(rapl), nullptr, begin);
  CHECK(meter.cpu_method().starts_with("load of the machine"));
  const auto faults = meter.take_faults();
  CHECK(faults.size() == 2);
  CHECK(toy::contains(faults.at(0), "energy_uj can't be read; the CPU is measured by its load instead"));
  CHECK(toy::contains(faults.at(1), "W are assumed: set force_cpu_power or data_dir"));
}

TEST_CASE("a given power overrides RAPL") {
  const toy::Folder rapl;
  set_counter(rapl, "1000000");
  auto forced = options(rapl);
  forced.force_cpu_power = 1000;
  EnergyMeter meter(forced, nullptr, begin);
  set_counter(rapl, "101000000");
  const auto watts = meter.measure(begin + 10s).cpu_energy * 3.6e6 / 10;
  CHECK(watts >= 99.9);
  CHECK(watts <= 1000.1);
  CHECK(meter.take_faults().empty());

  auto by_load = options(rapl);
  by_load.force_mode_cpu_load = true;
  CHECK(EnergyMeter(by_load, nullptr, begin).cpu_method().starts_with("load of the machine"));
}

TEST_CASE("the table of processors gives the TDP, for each socket") {
  const toy::Folder rapl, data;
  const auto info = etude::detail::read_processor_info();
  std::filesystem::create_directories(data / "hardware");
  toy::write_text(data / "hardware/cpu_power.csv", "Name,TDP\n\"" + info.model + "\",150\n");
  auto with_table = options(rapl);
  with_table.data_dir = data;
  if (!info.model.empty())
    CHECK(EnergyMeter(with_table, nullptr, begin).tdp() == 150.0 * static_cast<double>(info.sockets));
  CHECK(EnergyMeter(options(rapl), nullptr, begin).tdp() ==
        4.0 * static_cast<double>(etude::detail::count_threads()));
  std::filesystem::remove_all(data / "hardware");
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { EnergyMeter(with_table, nullptr, begin); }),
                      "cpu_power.csv can't be read"));
}

TEST_CASE("for tracking a process, only its own time and memory count") {
  const toy::Folder rapl;
  EnergyMeter meter({.tracking_mode = "process", .force_cpu_power = 100, .rapl_dir = rapl}, nullptr, begin);
  meter.sample(begin + 500s);
  const auto idle = meter.measure(begin + 1000s);
  CHECK(idle.cpu_energy * 3.6e6 / 1000 < 1);  // a tenth of the TDP would be 10
  CHECK(idle.ram_energy * 3.6e6 / 1000 == Approx(etude::detail::is_arm_machine() ? 3 : 10));
}

}  // namespace integrations_codecarbon_energy_meter_test
