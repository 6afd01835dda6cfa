#include "etude/report/run_recorder.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace report_run_recorder_test {

using etude::ReportMarkKind;
using etude::ReportSample;
using etude::ReportSampleKind;
using etude::RunReport;
using etude::SeriesColumns;
using etude::detail::RunRecorder;
using Logs = std::vector<std::pair<std::string, double>>;

const SeriesColumns* series_of(const RunReport& report, const std::string& name) {
  for (const auto& columns : report.series)
    if (columns.name == name) return &columns;
  return nullptr;
}

TEST_CASE("logs become series in the order in which they began, and the last one a summary") {
  RunRecorder recorder;
  recorder.log(10, Logs{{"loss", 2}, {"epoch", 0.5}});
  recorder.log(20, Logs{{"loss", 1}, {"eval_loss", 3}, {"epoch", 1}});
  recorder.log(20, Logs{{"train_runtime", 7}, {"train_loss", 1.5}, {"epoch", 1}});
  const auto report = recorder.report();
  REQUIRE(report.series.size() == 3);
  CHECK(report.series[0].name == "loss");
  CHECK(report.series[0].steps == std::vector<std::int64_t>{10, 20});
  CHECK(report.series[1].name == "epoch");
  CHECK(report.series[1].steps == std::vector<std::int64_t>{10, 20});
  CHECK(report.series[2].name == "eval_loss");
  CHECK(report.summary == etude::NamedNumbers{{"train_loss", 1.5}, {"train_runtime", 7}});
}

TEST_CASE("an evaluation after the summary is no part of the curves, unless the training goes on") {
  RunRecorder recorder;
  recorder.log(20, Logs{{"eval_loss", 3}});
  recorder.log(20, Logs{{"train_runtime", 7}});
  recorder.log(20, Logs{{"eval_loss", 2}, {"epoch", 1}});
  CHECK(recorder.report().afterwards == etude::NamedNumbers{{"eval_loss", 2}});
  recorder.log(30, Logs{{"eval_loss", 1}});
  const auto report = recorder.report();
  REQUIRE(report.series.size() == 1);
  CHECK(report.series[0].steps == std::vector<std::int64_t>{20, 30});
  CHECK(report.series[0].values == std::vector<double>{3, 1});
}

TEST_CASE("logs of steps that count tokens have train_runtime and are no summary") {
  RunRecorder recorder;
  recorder.log(1, Logs{{"loss", 2}, {"train_runtime", 7}});
  const auto report = recorder.report();
  CHECK(report.summary.empty());
  REQUIRE(series_of(report, "loss"));
  CHECK(series_of(report, "loss")->values == std::vector<double>{2});
}

TEST_CASE("all entries of a confusion matrix are one, and names that only look like it are series") {
  RunRecorder recorder;
  recorder.log(1, Logs{{"eval_confusion_0_0", 9},
                       {"eval_confusion_0_1", 1},
                       {"eval_confusion_1_0", 0},
                       {"eval_confusion_1_1", 8},
                       {"eval_loss", 1}});
  recorder.log(2, Logs{{"eval_confusion_0_0", 10},
                       {"eval_confusion_0_1", 0},
                       {"eval_confusion_1_0", 2},
                       {"eval_confusion_1_1", 6}});
  recorder.log(
      2,
      Logs{
          {"bucket_3_0", 1}, {"layer_0_0", 1}, {"layer_0_1", 2}, {"layer_1_0", 3}, {"_1_1", 4}, {"x_1_", 5}});
  const auto report = recorder.report();
  REQUIRE(report.matrices.size() == 1);
  CHECK(report.matrices[0].name == "eval_confusion");
  CHECK(report.matrices[0].step == 2);
  CHECK(report.matrices[0].rows == std::vector<std::vector<double>>{{10, 0}, {2, 6}});
  CHECK(series_of(report, "eval_confusion_0_0") == nullptr);
  for (const auto* name : {"eval_loss", "bucket_3_0", "layer_1_0", "_1_1", "x_1_"})
    CHECK(series_of(report, name) != nullptr);
}

TEST_CASE("many series have fewer points each, and ever new names don't fill the memory") {
  RunRecorder recorder;
  for (int name = 0; name < 2000; ++name) {
    Logs logs{{"n" + std::to_string(name), 1}};
    for (int step = 0; step < 600; ++step) recorder.log(step, logs);
  }
  const auto report = recorder.report();
  CHECK(report.series.size() == 500);
  CHECK(report.series_left_out == 500);  // it stops counting
  std::size_t points = 0;
  for (const auto& columns : report.series) points += columns.steps.size();
  CHECK(points <= 100'000);
  CHECK(points > 40'000);
}

TEST_CASE("samples are those of the latest steps, as many as fit") {
  const auto text = [](std::int64_t step, const std::string& name, const std::string& content) {
    return ReportSample{.step = step,
                        .name = name,
                        .kind = ReportSampleKind::text,
                        .content = content,
                        .caption = "",
                        .is_cut = false};
  };
  RunRecorder recorder;
  for (int step = 1; step <= 4; ++step)
    for (const auto* name : {"a", "b"}) recorder.add(text(step, name, "text"), 2, 1000);
  REQUIRE(recorder.run.samples.size() == 4);
  CHECK(recorder.run.samples.front().step == 3);
  recorder.add(text(4, "b", "another"), 2, 1000);
  REQUIRE(recorder.run.samples.size() == 4);
  CHECK(recorder.run.samples.back().content == "another");
  recorder.add(text(5, "c", std::string(990, 'x')), 2, 1000);
  REQUIRE(recorder.run.samples.size() == 2);  // "another" and one more
  CHECK(recorder.run.samples.front().content == "another");

  auto picture = text(6, "picture", std::string(300, 'A'));
  picture.kind = ReportSampleKind::image;
  recorder.add(picture, 2, 1000);
  CHECK(recorder.run.samples.back().content == "");
  CHECK(recorder.run.samples.back().is_cut);

  RunRecorder with_long_text;
  std::string umlauts;
  for (int i = 0; i < 20'000; ++i) umlauts += "\xC3\xA4";
  with_long_text.add(text(1, "long", "x" + umlauts), 2, 1'000'000);
  REQUIRE(with_long_text.run.samples.size() == 1);
  const auto& cut = with_long_text.run.samples.front();
  CHECK(cut.is_cut);
  CHECK(cut.content.size() == 19'999);  // "x" and complete two-byte characters
}

TEST_CASE("a training with many checkpoints keeps the first mark and the latest ones") {
  RunRecorder recorder;
  recorder.mark(ReportMarkKind::began, 0, 1, "");
  for (int step = 1; step <= 1000; ++step) recorder.mark(ReportMarkKind::saved, step, 2, "x");
  REQUIRE(recorder.run.marks.size() == 500);
  CHECK(recorder.run.marks.front().kind == ReportMarkKind::began);
  CHECK(recorder.run.marks.at(1).step == 502);
  CHECK(recorder.run.marks.back().step == 1000);
}

TEST_CASE("an earlier page gives what a log history lacks, up to a step") {
  RunRecorder first;
  first.run.began = 17;
  first.mark(ReportMarkKind::began, 0, 17, "");
  for (int step = 1; step <= 6; ++step) {
    first.log(step, Logs{{"loss", 1}, {"report/elapsed", 10.0 * step}});
    first.add({.step = step,
               .name = "t",
               .kind = ReportSampleKind::text,
               .content = "x",
               .caption = "",
               .is_cut = false},
              9, 1000);
    first.mark(ReportMarkKind::saved, step, 20, "");
  }
  first.mark(ReportMarkKind::ended, 4, 20, "");
  RunRecorder second;
  second.take(first.report(), 4);
  CHECK(second.run.began == 17);
  CHECK(second.run.marks.size() == 5);
  CHECK(second.run.samples.size() == 4);
  CHECK(second.last("report/elapsed") == 40);
  CHECK(series_of(second.report(), "loss") == nullptr);
  second.log(5, Logs{{"report/elapsed", 55}});
  CHECK(series_of(second.report(), "report/elapsed")->values == std::vector<double>{10, 20, 30, 40, 55});
}

}  // namespace report_run_recorder_test
