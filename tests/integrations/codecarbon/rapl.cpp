#include "etude/integrations/codecarbon/rapl.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/fault_of.hpp"
#include "common/folder.hpp"

namespace integrations_codecarbon_rapl_test {

using doctest::Approx;
using etude::detail::Rapl;

constexpr double kwh = 2.77778e-7;  // per joule
using Names = std::vector<std::string>;

/// A folder of RAPL domains like Linux's.
struct Tree {
  toy::Folder folder;

  void add(const std::string& domain, const std::string& name, std::int64_t microjoules,
           std::int64_t range = 262143328850) {
    std::filesystem::create_directories(folder / domain);
    toy::write_text(folder / (domain + "/name"), name + "\n");
    toy::write_text(folder / (domain + "/max_energy_range_uj"), std::to_string(range) + "\n");
    set(domain, microjoules);
  }
  void set(const std::string& domain, std::int64_t microjoules) {
    toy::write_text(folder / (domain + "/energy_uj"), std::to_string(microjoules) + "\n");
  }
  void make_unreadable(const std::string& domain) {
    std::filesystem::remove_all(folder / (domain + "/energy_uj"));
    std::filesystem::create_directories(folder / (domain + "/energy_uj"));
  }
  Rapl open(Rapl::Options options = {}) const { return Rapl(std::string(folder), options); }
};

TEST_CASE("the packages are counted, and their subdomains aren't counted again") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 1'000'000'000);
  tree.add("intel-rapl:1", "package-1", 5'000'000'000);
  tree.add("intel-rapl:0/intel-rapl:0:0", "core", 900'000'000);
  tree.add("intel-rapl:0:0", "core", 900'000'000);
  tree.add("intel-rapl:0:1", "dram", 70'000'000);
  tree.add("intel-rapl:2", "psys", 9'000'000'000);
  auto rapl = tree.open();
  CHECK(rapl);
  CHECK(rapl.names() == Names{"package-0", "package-1"});
  tree.set("intel-rapl:0", 1'036'000'000);
  tree.set("intel-rapl:1", 5'003'000'000);
  for (const auto* inside : {"intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2"})
    tree.set(inside, 99'000'000'000);
  CHECK(rapl.take_kwh().value() == Approx(39 * kwh));
  CHECK(rapl.take_kwh().value() == 0);
}

TEST_CASE("a counter that wraps around continues from 0") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 990'000'000, 1'000'000'000);
  auto rapl = tree.open();
  tree.set("intel-rapl:0", 20'000'000);
  CHECK(rapl.take_kwh().value() == Approx(30 * kwh));
}

TEST_CASE("a reset counter with an unknown range gives no negative energy") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 990'000'000, 0);
  auto rapl = tree.open();
  tree.set("intel-rapl:0", 20'000'000);
  CHECK(rapl.take_kwh() == std::nullopt);
  tree.set("intel-rapl:0", 25'000'000);
  CHECK(rapl.take_kwh().value() == Approx(5 * kwh));
}

TEST_CASE("a package that two interfaces show counts once, by the newer one") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 100'000'000);
  tree.add("intel-rapl-mmio:0", "package-0", 500'000'000);
  auto rapl = tree.open();
  CHECK(rapl.names() == Names{"package-0"});
  tree.set("intel-rapl:0", 110'000'000);
  tree.set("intel-rapl-mmio:0", 507'000'000);
  CHECK(rapl.take_kwh().value() == Approx(7 * kwh));
}

TEST_CASE("domains below the folder of their interface are found, each once") {
  Tree tree;
  tree.add("intel-rapl/intel-rapl:0", "package-0", 100'000'000);
  std::filesystem::create_directory_symlink(tree.folder / "intel-rapl/intel-rapl:0",
                                            tree.folder / "intel-rapl:0");
  auto rapl = tree.open();
  tree.set("intel-rapl/intel-rapl:0", 104'000'000);
  CHECK(rapl.take_kwh().value() == Approx(4 * kwh));
}

TEST_CASE("memory and the whole platform are counted if configured") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 100'000'000);
  tree.add("intel-rapl:1", "psys", 300'000'000);
  tree.add("intel-rapl:2", "dram", 700'000'000);
  CHECK(tree.open({.include_dram = true}).names() == Names{"package-0", "dram"});
  CHECK(tree.open({.prefer_psys = true}).names() == Names{"psys"});
  std::filesystem::remove_all(tree.folder / "intel-rapl:0");
  CHECK(tree.open().names() == Names{"psys"});
}

TEST_CASE("one counter that appears once for each die counts once; separate equal ones count each") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0-die-0", 100'000'000'000);
  tree.add("intel-rapl:1", "package-0-die-1", 100'000'020'000);
  auto rapl = tree.open();
  tree.set("intel-rapl:0", 100'050'000'000);
  tree.set("intel-rapl:1", 100'050'030'000);
  CHECK(rapl.take_kwh().value() == Approx(50 * kwh));
  tree.set("intel-rapl:0", 100'060'000'000);
  tree.set("intel-rapl:1", 100'099'000'000);  // read later, but already known to be the same counter
  CHECK(rapl.take_kwh().value() == Approx(10 * kwh));

  Tree apart;
  apart.add("intel-rapl:0", "package-0", 100'000'000'000);
  apart.add("intel-rapl:1", "package-1", 100'000'020'000);
  auto both = apart.open();
  apart.set("intel-rapl:0", 100'050'000'000);
  apart.set("intel-rapl:1", 100'020'020'000);
  CHECK(both.take_kwh().value() == Approx(70 * kwh));
}

TEST_CASE("an unreadable counter is reported, and a part of the packages isn't a measurement") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 100'000'000);
  tree.add("intel-rapl:1", "package-1", 900'000'000);
  tree.make_unreadable("intel-rapl:1");
  const auto rapl = tree.open();
  CHECK_FALSE(rapl);
  CHECK(toy::contains(rapl.fault(), "intel-rapl:1/energy_uj can't be read"));
}

TEST_CASE("the readable one of two interfaces is used") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 100'000'000);
  tree.add("intel-rapl-mmio:0", "package-0", 500'000'000);
  tree.make_unreadable("intel-rapl-mmio:0");
  auto rapl = tree.open();
  CHECK(rapl);
  tree.set("intel-rapl:0", 103'000'000);
  CHECK(rapl.take_kwh().value() == Approx(3 * kwh));
}

TEST_CASE("a counter that can't be read for a while restarts, and the missed energy isn't counted later") {
  Tree tree;
  tree.add("intel-rapl:0", "package-0", 100'000'000);
  auto rapl = tree.open();
  tree.make_unreadable("intel-rapl:0");
  CHECK(rapl.take_kwh() == std::nullopt);
  std::filesystem::remove_all(tree.folder / "intel-rapl:0/energy_uj");
  tree.set("intel-rapl:0", 150'000'000);
  CHECK(rapl.take_kwh() == std::nullopt);
  tree.set("intel-rapl:0", 152'000'000);
  CHECK(rapl.take_kwh().value() == Approx(2 * kwh));
}

TEST_CASE("without counters there is no energy, and nothing is reported") {
  const toy::Folder empty;
  const Rapl none(std::string(empty), {}), nowhere("/nonexistent", {});
  CHECK_FALSE(none);
  CHECK(none.fault().empty());
  CHECK_FALSE(nowhere);
}

}  // namespace integrations_codecarbon_rapl_test
