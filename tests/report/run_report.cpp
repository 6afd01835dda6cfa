#include "etude/report/run_report.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"
#include "etude/report/run_recorder.hpp"

namespace report_run_report_test {

using etude::ArgumentError;
using etude::CheckpointError;
using etude::read_report;
using etude::RunReport;
using etude::write_comparison;
using Logs = std::vector<std::pair<std::string, double>>;

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

RunReport run_of(const std::string& name, double rate) {
  etude::detail::RunRecorder recorder;
  recorder.run.name = name;
  recorder.run.id = name;
  recorder.run.arguments = {{"learning_rate", rate}, {"seed", 42}};
  recorder.run.handlers = {{"StepEnd", {"Mine"}}};
  recorder.log(1, Logs{{"loss", rate}});
  recorder.log(2, Logs{{"loss", 0.5}});
  return recorder.report();
}

void write_page(const std::filesystem::path& path, const RunReport& run) {
  toy::write_text(path, etude::detail::run_page({run}, run.name));
}

TEST_CASE("a page is read as it was written") {
  const toy::Folder folder;
  auto run = run_of("first", 0.25);
  run.reason = "caf\xC3\xA9 \"quoted\" \\ \n & < > </script> <!-- \xE2\x80\xA8";
  run.samples.push_back({.step = 2,
                         .name = "t",
                         .kind = etude::ReportSampleKind::image,
                         .content = "iVBORw==",
                         .caption = "",
                         .is_cut = false});
  run.learning_rates = etude::ReportLearningRates{
      .learning_rates = {1, 2}, .losses = {3, 4}, .smoothed = {5, 6}, .suggested = 1.5};
  write_page(folder / "report.html", run);
  for (const auto& path : {folder / "report.html", folder / ""}) {
    const auto runs = read_report(path);
    REQUIRE(runs.size() == 1);
    CHECK(etude::to_json_value(runs[0]) == etude::to_json_value(run));
  }
}

TEST_CASE("no text of a run can leave its place in the page, or load anything") {
  const std::string evil = "</script></title><script>alert(1)</script><!--<img onerror=alert(1)>\"'";
  auto run = run_of(evil, 1);
  run.reason = run.trial_name.emplace(evil);
  run.arguments[evil] = evil;
  run.handlers = {{evil, {evil}}};
  run.series[0].name = evil;
  run.samples.push_back({.step = 1,
                         .name = evil,
                         .kind = etude::ReportSampleKind::text,
                         .content = evil + "\xFF",
                         .caption = evil,
                         .is_cut = false});
  const auto page = etude::detail::run_page({run}, run.name);
  CHECK(count(page, "<script") == 2);
  CHECK(count(page, "</script") == 2);
  CHECK(count(page, "<img") == 0);
  CHECK(count(page, "<!--") == 0);
  CHECK(count(page, "\xFF") == 0);
  CHECK(count(page, "</title>") == 1);
  CHECK(count(page, "http") == count(page, "http-equiv") + count(page, "http://www.w3.org/2000/svg"));
  CHECK(count(page, "Content-Security-Policy\" content=\"default-src 'none';") == 1);
}

TEST_CASE("a page of a stranger is refused with its path, the field and what is allowed") {
  const toy::Folder folder;
  const auto fault = [&](const std::string& text) {
    toy::write_text(folder / "page.html", text);
    return toy::fault_of<ArgumentError>([&] { read_report(folder / "page.html"); });
  };
  const auto page = [](const std::string& json) {
    return "<script type=\"application/json\" id=\"runs\">" + json + "</script>";
  };
  CHECK(toy::contains(fault("<html>"), "page.html: it has no data of a run"));
  CHECK(toy::contains(fault("<script type=\"application/json\" id=\"runs\">{"), "it has no data of a run"));
  CHECK(toy::contains(fault(page("{")), "page.html: "));
  CHECK(toy::contains(fault(page("{}")), "format is '' and version 0: must be 'etude-report' and 1"));
  const auto with_run = [&](const std::string& members) {
    return fault(page("{\"format\":\"etude-report\",\"version\":1,\"runs\":[{" + members + "}]}"));
  };
  CHECK(with_run("") == "nothing was thrown");
  CHECK(toy::contains(with_run("\"step\":\"many\""), "page.html: runs[0].step is "));
  CHECK(toy::contains(with_run("\"status\":\"hacked\""), "runs[0].status is "));
  CHECK(toy::contains(with_run("\"series\":[{\"name\":\"x\",\"steps\":[1],\"values\":[]}]"),
                      "runs[0].series[0].values has 0 values: must have 1"));
  CHECK(toy::contains(with_run("\"samples\":[{\"kind\":\"image\",\"content\":\"javascript:alert(1)\"}]"),
                      "runs[0].samples[0].content isn't Base64"));
  CHECK(toy::contains(with_run("\"matrices\":[{\"name\":\"x\",\"rows\":[[1,2],[3]]}]"),
                      "runs[0].matrices[0].rows has 2 rows, and one of 1 values: must be square"));
  CHECK(toy::contains(with_run("\"matrices\":[{\"rows\":[[1]],\"classes\":[\"a\",\"b\"]}]"),
                      "runs[0].matrices[0].classes has 2 names: must have 1"));
  CHECK(toy::contains(with_run("\"activities\":[\"a\"],\"ranks\":[{\"activities\":[1,2]}]"),
                      "runs[0].ranks[0].activities has 2 values: must have 1"));
  CHECK(toy::contains(with_run("\"learning_rates\":{\"learning_rates\":[1]}"),
                      "runs[0].learning_rates has 1 rates, 0 losses"));
  CHECK(toy::contains(with_run("\"arguments\":[1]"), "runs[0].arguments isn't an object"));
  CHECK(toy::contains(toy::fault_of([&] { read_report(folder / "missing.html"); }), "missing.html"));
}

TEST_CASE("a comparison has the runs of pages and folders, under different names") {
  const toy::Folder folder;
  for (const auto* name : {"a", "b"}) std::filesystem::create_directory(folder / name);
  write_page(folder / "a/report.html", run_of("same", 0.25));
  write_page(folder / "b/report.html", run_of("same", 0.5));
  write_page(folder / "c.html", run_of("other", 0.75));
  write_comparison(folder / "all.html", {folder / "a", folder / "b/report.html", folder / "c.html"});
  auto runs = read_report(folder / "all.html");
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].name == "same");
  CHECK(runs[1].name == "same (2)");
  CHECK(runs[2].name == "other");
  CHECK(runs[1].arguments["learning_rate"] == 0.5);
  CHECK(runs[2].series.at(0).values == std::vector<double>{0.75, 0.5});
  CHECK(runs[0].handlers.empty());
  // A comparison's page can be compared again.
  write_comparison(folder / "all.html", {folder / "all.html", folder / "a"});
  runs = read_report(folder / "all.html");
  REQUIRE(runs.size() == 4);
  CHECK(runs[3].name == "same (3)");
}

TEST_CASE("a comparison that can't be made leaves the page as it was") {
  const toy::Folder folder;
  toy::write_text(folder / "all.html", "old");
  write_page(folder / "a.html", run_of("a", 1));
  CHECK(toy::fault_of<ArgumentError>([&] { write_comparison(folder / "all.html", {}); }) ==
        "runs is empty: must have at least one page or folder");
  CHECK(toy::contains(toy::fault_of<CheckpointError>([&] {
                        write_comparison(folder / "all.html", {folder / "a.html", folder / "b"});
                      }),
                      "/b"));
  CHECK(toy::read_text(folder / "all.html") == "old");
  CHECK(toy::names_in(folder / "") == toy::Names{"a.html", "all.html"});
}

}  // namespace report_run_report_test
