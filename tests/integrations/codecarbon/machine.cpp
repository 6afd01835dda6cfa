#include "etude/integrations/codecarbon/machine.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <string>

namespace integrations_codecarbon_machine_test {

using doctest::Approx;
using etude::detail::cpu_load;
using etude::detail::cpu_power;
using etude::detail::cpu_times;
using etude::detail::find_tdp;
using etude::detail::ram_power;

TEST_CASE("the load is the share of time that the processors were busy") {
  // user nice system idle iowait irq softirq steal guest guest_nice
  const auto before = cpu_times("cpu  100 10 50 800 40 5 5 10 30 5\ncpu0 1 2 3 4\n").value();
  const auto now = cpu_times("cpu  130 20 60 830 50 10 10 20 60 9\n").value();
  CHECK(before.total == 1020);
  CHECK(before.busy == 180);
  CHECK(cpu_load(before, now) == Approx(70.0 / 110 * 100));
  CHECK(cpu_load(now, now) == 0);
  CHECK(cpu_load(now, before) == 0);
  CHECK(cpu_times("cpu 1 2 3 4").value().total == 10);  // old kernels have only these four
  CHECK_FALSE(cpu_times("intr 1 2 3 4 5 6 7 8"));
  CHECK_FALSE(cpu_times(""));
}

TEST_CASE("a processor draws a tenth of its TDP, and the rest with the cube of its load") {
  CHECK(cpu_power(100, 0) == Approx(10));
  CHECK(cpu_power(100, 25) == Approx(11.40625));
  CHECK(cpu_power(100, 50) == Approx(21.25));
  CHECK(cpu_power(100, 75) == Approx(47.96875));
  CHECK(cpu_power(100, 100) == Approx(100));
}

TEST_CASE("the memory's power depends on its modules") {
  // The results are CodeCarbon's.
  CHECK(ram_power(1, false) == 10);
  CHECK(ram_power(16, false) == 10);
  CHECK(ram_power(23.5, false) == 20);
  CHECK(ram_power(64, false) == 20);
  CHECK(ram_power(65, false) == Approx(38));
  CHECK(ram_power(128, false) == Approx(38));
  CHECK(ram_power(129, false) == Approx(20 + 18 + 4));  // nine modules of 16 GiB
  CHECK(ram_power(1024, false) == Approx(38));
  CHECK(ram_power(2048, false) == Approx(70));
  CHECK(ram_power(1e6, false) == Approx(70 + 16 * 3.5));  // never more than 32 modules
  CHECK(ram_power(1, true) == 3);
  CHECK(ram_power(32, true) == 6);
}

TEST_CASE("a processor is found in the table by its name, with and without vendors' additions") {
  const std::string table =
      "Name,TDP\n"
      "Intel Core i7-7600U,15\n"
      "AMD Ryzen 5 3600,65.0\n"
      "Intel Xeon Platinum 8480+,350\n"
      "\"Intel EP80579 Integrated, 1066 MHz\",18.0\n"
      "AMD EPYC 7742,225\n"
      "AMD EPYC 7763,280\n"
      "Apple M1,14\n";
  CHECK(find_tdp("intel core I7-7600u", table) == 15.0);
  CHECK(find_tdp("Intel(R) Core(TM) i7-7600U CPU @ 2.80GHz", table) == 15.0);
  CHECK(find_tdp("Intel(R) Core i7-7600U CPU @ 2.80GHz", table) == 15.0);
  CHECK(find_tdp("Intel Core i7-7600U @ 2.80GHz", table) == 15.0);
  CHECK(find_tdp("AMD Ryzen 5 3600 6-Core Processor", table) == 65.0);  // contains all of the entry's words
  CHECK(find_tdp("Intel EP80579 Integrated 1066 MHz", table) == 18.0);
  CHECK(find_tdp("AMD EPYC", table) == std::nullopt);  // two entries match
  CHECK(find_tdp("EPYC 7742", table) == 225.0);
  CHECK(find_tdp("Some Processor", table) == std::nullopt);
  CHECK(find_tdp("", table) == std::nullopt);
  CHECK(find_tdp("Apple M1", "") == std::nullopt);
}

TEST_CASE("available memory doesn't count as used") {
  const auto info = etude::detail::memory_info(
      "MemTotal:       8388608 kB\nMemFree:  1048576 kB\nMemAvailable:    6291456 kB\n");
  CHECK(info.total_gib == 8);
  CHECK(info.used_gib == 2);
  CHECK(info.used_percent() == 25);
  CHECK(etude::detail::memory_info("").used_percent() == 0);
}

TEST_CASE("this process's usage is counted") {
  const auto before = etude::detail::read_process_use();
  CHECK(before.cpu_seconds.contains(::getpid()));
  CHECK(before.memory_gib > 0.001);
  const auto begun = std::clock();
  volatile double sink = 0;
  while (static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC < 0.3) sink = sink + 1;
  const auto used = etude::detail::cpu_seconds_since(before, etude::detail::read_process_use());
  CHECK(used > 0.2);
  CHECK(used < 10);
  CHECK(etude::detail::cpu_seconds_since({}, before) == 0);  // a new process counts from now on
}

}  // namespace integrations_codecarbon_machine_test
