#include "etude/callbacks/report.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/ranks.hpp"
#include "common/toy.hpp"
#include "etude/report/run_report.hpp"
#include "etude/tune/learning_rate_finder.hpp"

namespace callbacks_report_test {

using etude::ReportCallback;
using etude::RunReport;
using etude::RunStatus;
using Steps = std::vector<std::int64_t>;

RunReport page_of(const std::filesystem::path& path) {
  const auto runs = etude::read_report(path);
  REQUIRE(runs.size() == 1);
  return runs[0];
}

Steps steps_of(const RunReport& run, const std::string& name) {
  for (const auto& columns : run.series)
    if (columns.name == name) return columns.steps;
  return {};
}

using Words = std::vector<std::string>;

/// The kinds of all marks, in order.
Words kinds_of(const RunReport& run) {
  Words kinds;
  for (const auto& mark : run.marks) kinds.emplace_back(etude::to_string(mark.kind));
  return kinds;
}

TEST_CASE("the page has logs, arguments, handlers, time and memory of a training") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  args.run_name = "first run";
  args.eval_strategy = etude::IntervalStrategy::epoch;
  args.metric_for_best_model = "loss";
  args.greater_is_better = false;
  etude::Trainer<ReportCallback> trainer(toy::options(args));
  trainer.train();
  const auto run = page_of(folder / "");
  CHECK(run.name == "first run");
  CHECK(run.status == RunStatus::finished);
  CHECK(run.step == 4);
  CHECK(run.max_steps == 4);
  CHECK(run.epoch == 2);
  CHECK(run.world_size == 1);
  CHECK(steps_of(run, "loss") == Steps{1, 2, 3, 4});
  CHECK(steps_of(run, "eval_loss") == Steps{2, 4});
  CHECK(steps_of(run, "report/elapsed") == Steps{1, 2, 3, 4});
  CHECK(steps_of(run, "report/steps_per_second") == Steps{1, 2, 3, 4});
  CHECK(steps_of(run, "report/resident_memory") == Steps{1, 2, 3, 4});
  CHECK(run.summary.contains("train_runtime"));
  CHECK(run.best_metric == "eval_loss");
  CHECK(run.best_value == trainer.state().best_metric);
  CHECK(run.best_step == trainer.state().best_global_step);
  CHECK(run.arguments.at("learning_rate") == 0.1);
  CHECK(std::ranges::count(run.changed, "learning_rate") == 1);
  CHECK(std::ranges::count(run.changed, "weight_decay") == 0);
  CHECK(kinds_of(run) == Words{"began", "ended"});
  bool has_log = false;
  for (const auto& [event, callbacks] : run.handlers)
    has_log = has_log || (event == "Log" && callbacks.back() == "ReportCallback");
  CHECK(has_log);
  REQUIRE(run.ranks.size() == 1);
  CHECK(run.ranks[0].memory > 1e6);
  CHECK(run.activities.at(2) == "forward");
  CHECK(run.ranks[0].activities.at(2) > 0);
}

TEST_CASE(
    "the page grows while the training runs, at most every so many seconds or a hundred times its writing") {
  struct Looks {
    std::filesystem::path page;
    const ReportCallback* report = nullptr;
    std::vector<std::size_t> seen = {};
    Words status = {};
    void on(const etude::StepBegin&) {
      const auto run = page_of(page);
      seen.push_back(steps_of(run, "loss").size());
      status.emplace_back(etude::to_string(run.status));
      if (report->seconds == 0 && seen.size() < 3)
        std::this_thread::sleep_for(report->watch.last_write * 101);
    }
  };
  for (const double seconds : {0.0, 1000.0}) {
    const toy::Folder folder;
    etude::Trainer<ReportCallback, Looks> trainer(
        toy::options(toy::logged_arguments(folder)),
        ReportCallback{.path = "pages/mine.html", .seconds = seconds}, Looks{folder / "pages/mine.html"});
    auto& looks = trainer.callback<Looks>();
    looks.report = &trainer.callback<ReportCallback>();
    trainer.train();
    looks.seen.pop_back();  // whether the last log was due depends on the disk
    CHECK(looks.seen == (seconds == 0 ? std::vector<std::size_t>{0, 1, 2} : std::vector<std::size_t>(3)));
    CHECK(looks.status == Words(4, "running"));
    CHECK(steps_of(page_of(folder / "pages/mine.html"), "loss").size() == 4);
    CHECK(toy::names_in(folder / "pages") == toy::Names{"mine.html"});
  }
}

TEST_CASE("an exception ends the page with its text, and a stop with its reason") {
  struct Throws {
    bool stops = false;
    void on(const etude::StepBegin& e) {
      if (e.state.global_step < 2) return;
      if (stops) return e.control.request_stop("enough </script>");
      throw std::runtime_error("no <b>more</b> \xFF");
    }
  };
  const toy::Folder folder;
  etude::Trainer<Throws, ReportCallback> trainer(toy::options(toy::logged_arguments(folder)));
  CHECK_THROWS_AS(trainer.train(), std::runtime_error);
  auto run = page_of(folder / "");
  CHECK(run.status == RunStatus::failed);
  CHECK(run.reason == "no <b>more</b> \xEF\xBF\xBD (in Throws, at StepBegin)");
  CHECK(kinds_of(run) == Words{"began", "failed", "ended"});
  CHECK(run.marks.at(1).step == 2);

  etude::Trainer<Throws, ReportCallback> stopped(toy::options(toy::logged_arguments(folder)),
                                                 Throws{.stops = true});
  stopped.train();
  run = page_of(folder / "");
  CHECK(run.status == RunStatus::stopped);
  CHECK(run.reason == "enough </script>");
  CHECK(kinds_of(run) == Words{"began", "stopped", "ended"});
}

TEST_CASE("a resumed training goes on with its page, and repeats no step") {
  struct LogsText {
    void on(const etude::StepEnd& e) const {
      e.log_text("story", "step " + std::to_string(e.state.global_step));
    }
  };
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  toy::save_to(folder, args, 2);
  etude::Trainer<LogsText, ReportCallback> whole(toy::options(args));
  whole.train();
  const auto first = page_of(folder / "");
  CHECK(first.samples.size() == 4);
  for (const bool is_lost : {false, true}) {
    if (is_lost) toy::write_text(folder / "report.html", "half a pa");
    etude::Trainer<LogsText, ReportCallback> resumed(toy::options(args));
    resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
    const auto run = page_of(folder / "");
    CHECK(run.id == first.id);
    CHECK(steps_of(run, "loss") == Steps{1, 2, 3, 4});
    CHECK(steps_of(run, "epoch") == Steps{1, 2, 3, 4});
    CHECK(steps_of(run, "report/elapsed") == (is_lost ? Steps{3, 4} : Steps{1, 2, 3, 4}));
    Steps samples;
    for (const auto& sample : run.samples) samples.push_back(sample.step);
    CHECK(samples == (is_lost ? Steps{3, 4} : Steps{1, 2, 3, 4}));
    const auto kinds = kinds_of(run);
    CHECK(std::ranges::count(kinds, "resumed") == 1);
    CHECK(std::ranges::count(kinds, "began") == (is_lost ? 0 : 1));
    CHECK(std::ranges::count(kinds, "ended") == 1);
    if (!is_lost) CHECK(run.began == first.began);
  }
  // The page of another training isn't continued.
  etude::Trainer<LogsText, ReportCallback> anew(toy::options(args));
  anew.train();
  CHECK(page_of(folder / "").id != first.id);
  etude::Trainer<LogsText, ReportCallback> resumed(toy::options(args));
  toy::write_text(folder / "other.html", toy::read_text(folder / "report.html"));
  auto foreign = page_of(folder / "other.html");
  foreign.id = "another";
  toy::write_text(folder / "report.html", etude::detail::run_page({foreign}, "x"));
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(page_of(folder / "").samples.size() == 2);
}

/// Sleeps in each step.
struct Waits {
  std::chrono::milliseconds time{0};
  void on(const etude::StepEnd&) const { std::this_thread::sleep_for(time); }
};

double first_elapsed(const RunReport& run) {
  const auto found =
      std::ranges::find(run.series, "report/elapsed", [](const auto& columns) { return columns.name; });
  return found == run.series.end() ? 0 : found->values.at(0);
}

TEST_CASE("the time before a training was resumed counts without its page, too") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  toy::save_to(folder, args, 2);
  etude::Trainer<Waits, ReportCallback> whole(toy::options(args), Waits{std::chrono::milliseconds(500)});
  whole.train();
  std::filesystem::remove(folder / "report.html");
  etude::Trainer<Waits, ReportCallback> resumed(toy::options(args));
  resumed.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(first_elapsed(page_of(folder / "")) >=
        0.5);  // at least one step was finished before the log at step 2
  etude::Trainer<Waits, ReportCallback> anew(toy::options(args));
  anew.train();
  CHECK(first_elapsed(page_of(folder / "")) < 0.5);
}

TEST_CASE("a training that is resumed at its end keeps the times and the summary of its page") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  toy::save_to(folder, args, 2);
  etude::Trainer<ReportCallback> whole(toy::options(args));
  whole.train();
  whole.evaluate();
  const auto first = page_of(folder / "");
  for (const bool is_lost : {false, true}) {
    if (is_lost) std::filesystem::remove(folder / "report.html");
    etude::Trainer<ReportCallback> again(toy::options(args));
    again.train({.resume_from_checkpoint = folder / "checkpoint-4"});
    const auto run = page_of(folder / "");
    CHECK(run.status == RunStatus::finished);
    CHECK(steps_of(run, "loss") == Steps{1, 2, 3, 4});
    if (is_lost) {
      CHECK(run.ranks.empty());
      CHECK(run.summary.empty());
      CHECK(steps_of(run, "report/elapsed").empty());
      continue;
    }
    REQUIRE(run.ranks.size() == 1);
    CHECK(run.ranks[0].activities == first.ranks[0].activities);
    CHECK(run.ranks[0].memory == first.ranks[0].memory);
    CHECK(run.summary == first.summary);
    CHECK(run.afterwards == first.afterwards);
    CHECK(first_elapsed(run) == first_elapsed(first));
  }
  // A training that has a step left measures that step.
  etude::Trainer<ReportCallback> more(toy::options(args));
  more.train({.resume_from_checkpoint = folder / "checkpoint-2"});
  CHECK(page_of(folder / "").summary.contains("train_runtime"));
  CHECK(page_of(folder / "").ranks.size() == 1);
}

TEST_CASE("samples are on the page, pictures and sounds as files in it") {
  struct LogsAll {
    void on(const etude::TrainBegin&) {}
    void on(const etude::EpochEnd& e) const {
      e.log_text("eval_story", "Once upon a step");
      e.log_image("cat", torch::zeros({3, 2, 2}), "a dark cat");
      e.log_audio("mew", torch::zeros({4}), 8000);
    }
  };
  const toy::Folder folder;
  etude::Trainer<LogsAll, ReportCallback> trainer(toy::options(toy::logged_arguments(folder)), LogsAll{},
                                                  ReportCallback{.sample_steps = 1});
  trainer.train();
  const auto run = page_of(folder / "");
  REQUIRE(run.samples.size() == 3);
  CHECK(run.samples[0].content == "Once upon a step");
  CHECK(run.samples[1].step == 4);
  CHECK(run.samples[1].caption == "a dark cat");
  CHECK(run.samples[1].kind == etude::ReportSampleKind::image);
  CHECK(run.samples[1].content.starts_with("iVBORw0KGgo"));  // a PNG's signature
  CHECK(run.samples[2].kind == etude::ReportSampleKind::audio);
  CHECK(run.samples[2].content.starts_with("UklGR"));  // "RIFF"
}

TEST_CASE("a confusion matrix has the names of its classes, and a range test its curve") {
  struct Counts {
    void on(etude::Evaluate& e) const {
      e.metrics["eval_confusion_0_0"] = 3;
      e.metrics["eval_confusion_0_1"] = 1;
      e.metrics["eval_confusion_1_0"] = 0;
      e.metrics["eval_confusion_1_1"] = 4;
    }
  };
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<ReportCallback, Counts> trainer(toy::options(args, 8),
                                                 ReportCallback{.class_names = {"cat", "dog"}});
  const auto curve = etude::find_learning_rate(trainer, {.num_it = 12});
  trainer.callback<ReportCallback>().show(curve);
  trainer.train();
  const auto run = page_of(folder / "");
  REQUIRE(run.matrices.size() == 1);
  CHECK(run.matrices[0].rows == std::vector<std::vector<double>>{{3, 1}, {0, 4}});
  CHECK(run.matrices[0].classes == Words{"cat", "dog"});
  REQUIRE(run.learning_rates.has_value());
  CHECK(run.learning_rates->smoothed == curve.smoothed);
  CHECK(run.learning_rates->suggested == curve.suggested());
}

TEST_CASE("several processes are on the page of the first, and one that fails ends it") {
  const toy::Folder folder;
  if (toy::launches(2, {"ETUDE_TEST_FOLDER=" + std::string(folder)})) return;
  struct Fails {
    bool on_purpose = false;
    void on(const etude::StepBegin& e) const {
      if (on_purpose && e.args.process_index() == 1 && e.state.global_step == 2)
        throw std::runtime_error("lost");
    }
  };
  using Ranks = etude::Trainer<etude::DistributedDataParallel, Fails, ReportCallback>;
  auto args = toy::logged_arguments(folder);
  args.output_dir = std::getenv("ETUDE_TEST_FOLDER");
  args.eval_strategy = etude::IntervalStrategy::epoch;
  Ranks trainer(toy::options(args, 4));
  trainer.train();
  const bool is_first = trainer.args().process_index() == 0;
  if (is_first) {
    const auto run = page_of(args.output_dir);
    CHECK(run.world_size == 2);
    CHECK(run.status == RunStatus::finished);
    REQUIRE(run.ranks.size() == 2);
    CHECK(run.ranks[1].rank == 1);
    CHECK(run.ranks[1].memory > 1e6);
    CHECK(run.ranks[1].activities.at(2) > 0);
    CHECK(run.ranks[0].memory != run.ranks[1].memory);
  }
  Ranks failing(toy::options(args, 4), Fails{.on_purpose = true});
  CHECK_THROWS(failing.train());
  if (!is_first) return;
  const auto run = page_of(args.output_dir);
  CHECK(run.status == RunStatus::failed);
  CHECK(toy::contains(run.reason, "rank 1"));
}

TEST_CASE("an evaluation after the training is on the page at once, but not in the curves") {
  const toy::Folder folder;
  auto args = toy::logged_arguments(folder);
  args.eval_strategy = etude::IntervalStrategy::epoch;
  etude::Trainer<ReportCallback> trainer(toy::options(args), ReportCallback{.seconds = 1000});
  trainer.train();
  CHECK(page_of(folder / "").afterwards.empty());
  const auto metrics = trainer.evaluate();
  const auto run = page_of(folder / "");
  CHECK(steps_of(run, "eval_loss") == Steps{2, 4});
  CHECK(run.afterwards.at("eval_loss") == metrics.at("eval_loss"));
  CHECK(run.status == RunStatus::finished);
}

TEST_CASE("a page that can't be written is refused when training begins") {
  const toy::Folder folder;
  toy::write_text(folder / "file", "");
  auto args = toy::logged_arguments(folder);
  args.output_dir = folder / "file" / "folder";
  etude::Trainer<ReportCallback> trainer(toy::options(args));
  CHECK(
      toy::contains(toy::fault_of<etude::ArgumentError>([&] { trainer.train(); }), "path is report.html: "));
  etude::Trainer<ReportCallback> wrong(toy::options(toy::logged_arguments(folder)),
                                       ReportCallback{.seconds = -1});
  CHECK(toy::fault_of<etude::ArgumentError>([&] { wrong.train(); }) ==
        "seconds is -1: must be at least 0 and finite");
}

}  // namespace callbacks_report_test
