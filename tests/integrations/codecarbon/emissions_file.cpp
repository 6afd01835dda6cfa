#include "etude/integrations/codecarbon/emissions_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"

namespace integrations_codecarbon_emissions_file_test {

using etude::detail::emissions_columns;
using etude::detail::EmissionsFile;
using etude::detail::EmissionsRow;

const std::string header =
    "timestamp,project_name,run_id,experiment_id,duration,emissions,emissions_rate,cpu_power,gpu_power,ram_"
    "power,"
    "cpu_energy,gpu_energy,ram_energy,energy_consumed,water_consumed,country_name,country_iso_code,region,"
    "cloud_provider,cloud_region,os,python_version,codecarbon_version,cpu_count,cpu_model,gpu_count,gpu_"
    "model,"
    "longitude,latitude,ram_total_size,tracking_mode,cpu_utilization_percent,gpu_utilization_percent,"
    "ram_utilization_percent,ram_used_gb,on_cloud,pue,wue\n";

EmissionsRow row(const std::string& run_id, const std::string& duration) {
  return {{"run_id", run_id}, {"duration", duration}, {"pue", "1"}};
}
std::string line(const std::string& run_id, const std::string& duration) {
  return ",," + run_id + ",," + duration + std::string(32, ',') + "1,\n";
}

TEST_CASE("a new file has the header and the row, with all columns even if their values are unknown") {
  const toy::Folder folder;
  EmissionsFile file(folder / "deep/emissions.csv");
  file.write(row("a", "1.5"));
  CHECK(toy::read_text(folder / "deep/emissions.csv") == header + line("a", "1.5"));
  CHECK(toy::names_in(folder / "deep") == toy::Names{"emissions.csv"});
  CHECK(std::ranges::count(line("a", "1"), ',') == 37);
}

TEST_CASE("a run has one row, and those of others stay unchanged to the byte") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  const std::string others =
      "x,\"a \"\"quoted\"\"\nname, with a\",other,,1.50" + std::string(33, ',') + "\r\n";
  toy::write_text(path, header + others + line("a", "1") + others);
  EmissionsFile file(path);
  file.write(row("a", "2"));
  CHECK(toy::read_text(path) == header + others + line("a", "2") + others);
  file.write(row("b", "3"));
  CHECK(toy::read_text(path) == header + others + line("a", "2") + others + line("b", "3"));
  CHECK(file.row_of("a").value().at("duration") == "2");
  CHECK(file.row_of("other").value().at("project_name") == "a \"quoted\"\nname, with a");
  CHECK(file.row_of("c") == std::nullopt);
}

TEST_CASE("the last of a run's rows, which CodeCarbon's flush() appends, is its row") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  toy::write_text(path, header + line("a", "1") + line("a", "2"));
  EmissionsFile file(path);
  CHECK(file.row_of("a").value().at("duration") == "2");
  file.write(row("a", "3"));
  CHECK(toy::read_text(path) == header + line("a", "1") + line("a", "3"));
}

TEST_CASE("the columns may be in another order, as in CodeCarbon") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  std::vector<std::string> columns(emissions_columns().rbegin(), emissions_columns().rend());
  std::string reversed;
  for (const auto& column : columns) reversed += column + ',';
  reversed.back() = '\n';
  toy::write_text(path, reversed);
  EmissionsFile file(path);
  file.write(row("a", "1"));
  auto expected = line("a", "1");
  expected.pop_back();
  std::ranges::reverse(expected);
  CHECK(toy::read_text(path) == reversed + expected + "\n");
}

TEST_CASE("a file with other columns is kept under another name") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  for (const std::string name : {"emissions.csv.bak", "emissions.csv_0.bak", "emissions.csv_1.bak"}) {
    toy::write_text(path, "timestamp,duration\n" + name + ",1\n");
    EmissionsFile(path).write(row("a", "1"));
    CHECK(toy::read_text(folder / name) == "timestamp,duration\n" + name + ",1\n");
    CHECK(toy::read_text(path) == header + line("a", "1"));
    std::filesystem::remove(path);
  }
  toy::write_text(path, "");
  EmissionsFile(path).write(row("a", "1"));
  CHECK(toy::names_in(std::string(folder)).size() == 4);
}

TEST_CASE("a last line that is cut off stays on a line of its own") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  toy::write_text(path, header + "x,y");
  EmissionsFile(path).write(row("a", "1"));
  CHECK(toy::read_text(path) == header + "x,y\n" + line("a", "1"));
}

TEST_CASE("rows that a writer without locks adds while the file is replaced aren't lost") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  EmissionsFile ours(path);
  ours.write(row("a", "1"));
  const int late = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ours.write(row("a", "2"));
  const auto added = line("z", "9");
  CHECK(::write(late, added.data(), added.size()) == static_cast<ssize_t>(added.size()));
  ::close(late);
  CHECK(toy::read_text(path) == header + line("a", "2"));
  ours.write(row("a", "3"));
  CHECK(toy::read_text(path) == header + line("a", "3") + line("z", "9"));
  ours.write(row("a", "4"));
  CHECK(toy::read_text(path) == header + line("a", "4") + line("z", "9"));
}

TEST_CASE("several writers of one file lose none of each other's rows") {
  const toy::Folder folder;
  const auto path = folder / "emissions.csv";
  std::vector<std::thread> threads;
  for (const std::string run : {"a", "b", "c", "d"})
    threads.emplace_back([&path, run] {
      EmissionsFile file(path);
      for (int i = 0; i <= 12; ++i) file.write(row(run, std::to_string(i)));
    });
  for (auto& thread : threads) thread.join();
  const auto text = toy::read_text(path);
  CHECK(std::ranges::count(text, '\n') == 5);
  for (const std::string run : {"a", "b", "c", "d"}) CHECK(toy::contains(text, line(run, "12")));
  CHECK(toy::names_in(std::string(folder)) == toy::Names{"emissions.csv"});
}

TEST_CASE("a link stays one, and a file's permissions stay") {
  const toy::Folder folder;
  EmissionsFile(folder / "real.csv").write(row("a", "1"));
  ::chmod((folder / "real.csv").c_str(), 0640);
  std::filesystem::create_symlink("real.csv", folder / "link.csv");
  EmissionsFile(folder / "link.csv").write(row("b", "1"));
  CHECK(std::filesystem::is_symlink(folder / "link.csv"));
  CHECK(toy::read_text(folder / "real.csv") == header + line("a", "1") + line("b", "1"));
  struct stat status {};
  CHECK(::stat((folder / "real.csv").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
}

TEST_CASE("an unwritable file is an error, and an unreadable one isn't replaced") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  CHECK(toy::fault_of<etude::Error>([&] {
          EmissionsFile(folder / "file/emissions.csv").write(row("a", "1"));
        }) != "nothing was thrown");
  std::filesystem::create_directories(folder / "folder.csv/inside");
  CHECK(toy::contains(
      toy::fault_of<etude::Error>([&] { EmissionsFile(folder / "folder.csv").write(row("a", "1")); }),
      "can't be read"));
  CHECK(std::filesystem::is_directory(folder / "folder.csv/inside"));
}

}  // namespace integrations_codecarbon_emissions_file_test
