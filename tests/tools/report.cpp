#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "common/folder.hpp"
#include "common/silence.hpp"
#include "common/toy.hpp"
#include "etude/callbacks/report.hpp"
#include "tools/program.hpp"

namespace tools_report_test {

namespace fs = std::filesystem;
using toy::contains;

// A training that writes its page.
std::string reported(const fs::path& folder, double learning_rate) {
  auto args = toy::arguments();
  args.output_dir = folder.string();
  args.learning_rate = learning_rate;
  const toy::Silence silence;
  etude::Trainer trainer(toy::options(args, 4), etude::ReportCallback{});
  trainer.train();
  return folder.string();
}

TEST_CASE("the pages of several runs become one, which replaces none of them") {
  const toy::Folder folder;
  const auto slow = reported(folder / "slow", 0.01), fast = reported(folder / "fast", 0.1);
  const std::string page = folder / "page.html";
  const auto ran =
      toy::etude_program("report", slow + "/", fast + "/report.html", "--output", page, "--json");
  REQUIRE(ran.end == "exit 0");
  const auto json = ran.json();
  CHECK(json["page"] == page);
  REQUIRE(json["runs"].size() == 2);
  CHECK(json["runs"][0]["path"] == slow);
  CHECK(json["runs"][0]["status"] == "finished");
  CHECK(json["runs"][1]["step"] == 4);
  const auto written = etude::read_report(page);
  REQUIRE(written.size() == 2);
  CHECK(written[0].arguments["learning_rate"] == 0.01);
  CHECK(written[1].arguments["learning_rate"] == 0.1);

  const auto again = toy::etude_program("report", slow, "--output", page);
  CHECK(again.end == "exit 2");
  CHECK(contains(again.err, "which exists: --force overwrites it"));
  CHECK(etude::read_report(page).size() == 2);
  CHECK(toy::etude_program("report", slow, "--output", page, "--force").out == page + ": 1 run\n");

  const auto own = toy::etude_program("report", slow, "--output", slow + "/report.html", "--force");
  CHECK(own.end == "exit 2");
  CHECK(contains(own.err, "must be another page than that of a run"));
}

TEST_CASE("a run without a page is refused by its path, and no page is written") {
  const toy::Folder folder;
  fs::create_directory(folder / "run");
  const auto ran =
      toy::etude_program("report", (folder / "run").string(), "--output", (folder / "page.html").string());
  CHECK(ran.end == "exit 3");
  CHECK(contains(ran.err, (folder / "run" / "report.html").string()));
  CHECK(!fs::exists(folder / "page.html"));
}

}  // namespace tools_report_test
