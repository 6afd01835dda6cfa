#include "etude/callbacks/progress.hpp"

#include <doctest/doctest.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/screen.hpp"
#include "common/toy.hpp"
#include "common/written.hpp"
#include "etude/base/text_columns.hpp"

namespace callbacks_progress_test {

using toy::Variable;
using toy::written;

etude::TrainerOptions logged_training() {
  auto args = toy::arguments();
  args.disable_tqdm = false;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  return toy::options(args, 4, 3);
}

TEST_CASE("on a terminal the bar is below the logs and ends full") {
  const auto text = written(160, [](int) { etude::Trainer<>(logged_training()).train(); });
  const auto lines = toy::screen(text, 160);
  REQUIRE(lines.size() == 6);
  CHECK(lines[0].starts_with("{loss: "));
  CHECK(lines[1].starts_with("{loss: "));
  CHECK(lines[2].starts_with("{eval_loss: "));
  CHECK(lines[3].starts_with("{train_runtime: "));
  CHECK(lines[3].find("total_flos") == std::string::npos);
  CHECK(lines[4].starts_with("train 100% ████████"));
  CHECK(lines[4].find("█  4/4  ") != std::string::npos);
  CHECK(lines[4].find("  loss " + lines[1].substr(7, lines[1].find(',') - 7)) != std::string::npos);
  CHECK(lines[4].find("  eval_loss " + lines[2].substr(12, lines[2].find(',') - 12)) != std::string::npos);
  CHECK(lines[5].empty());
  CHECK(std::regex_search(text, std::regex("\rtrain 100%  loss [^\r]* › eval   0% ──")));
}

void check_plain(const std::string& text) {
  CHECK(text.find('\r') == text.npos);
  CHECK(text.find('\x1b') == text.npos);
  const auto lines = toy::screen(text, 1000);
  REQUIRE(lines.size() == 6);
  const std::regex last(
      "train 100%  4/4  [0-9.]+ (it/s|s/it)  [0-9:]+  loss [0-9.e-]+  eval_loss [0-9.e-]+  lr [0-9.e-]+");
  CAPTURE(lines[4]);
  CHECK(std::regex_match(lines[4], last));
}

TEST_CASE("in a pipe the bar is one line, at the end, without terminal control codes") {
  check_plain(written(
      0, [](int) { etude::Trainer<>(logged_training()).train(); }, nullptr));
}

TEST_CASE("a dumb terminal is treated as a pipe") {
  const Variable name("TERM", "dumb");
  auto text = written(
      160, [](int) { etude::Trainer<>(logged_training()).train(); }, nullptr);
  std::erase(text, '\r');  // the terminal adds one before each newline
  check_plain(text);
}

TEST_CASE("colours are for terminals without NO_COLOR") {
  const auto train = [](int) { etude::Trainer<>(logged_training()).train(); };
  CHECK(written(160, train, nullptr).find("\x1b[2m") != std::string::npos);
  CHECK(written(160, train, "").find("\x1b[2m") != std::string::npos);
  const auto plain = written(160, train, "1");
  CHECK(std::regex_search(plain, std::regex("\x1b\\[[0-9;]*m")) == false);
}

TEST_CASE("the cursor is never hidden, so no exit has to show it again") {
  CHECK(written(
            160, [](int) { etude::Trainer<>(logged_training()).train(); }, nullptr)
            .find("\x1b[?") == std::string::npos);
}

/// Prints while the bar of the training or of an evaluation is drawn.
struct Speaks {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 1) etude::message(e.args, etude::LogLevel::error, "a warning");
    if (e.state.global_step == 2) etude::print("a report\n");
    if (e.state.global_step == 3) etude::print(stderr, "two lines,\nthe last without an end");
  }
  void on(const etude::PredictionStep& e) {
    if (e.eval_dataloader != nullptr && spoken++ == 0) etude::print("from an evaluation\n");
  }
  int spoken = 0;
};

etude::TrainerOptions quiet_training() {
  auto args = toy::arguments();
  args.log_level = etude::LogLevel::warning;
  args.disable_tqdm = false;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  return toy::options(args, 4, 3);
}

TEST_CASE("output printed while a bar is drawn appears above it, on standard output and error alike") {
  const auto text = written(160, [](int) { etude::Trainer<Speaks>(quiet_training()).train(); });
  const auto lines = toy::screen(text, 160);
  REQUIRE(lines.size() == 9);
  CHECK(lines[0] == "etude: error: a warning");
  CHECK(lines[1] == "a report");
  CHECK(lines[2] == "two lines,");
  CHECK(lines[3] == "the last without an end");
  CHECK(lines[4] == "from an evaluation");
  CHECK(lines[5].starts_with("{eval_loss: "));
  CHECK(lines[6].starts_with("{train_runtime: "));
  CHECK(lines[7].starts_with("train 100% "));
  CHECK(lines[8].empty());
}

TEST_CASE("in a pipe etude::print writes the same as fmt::print") {
  CHECK(written(0, [](int) {
          const etude::ProgressBar bar(stderr, "train", 10);
          etude::print("{} of ", 1);
          etude::print(stderr, "{}\n", 2);
        }) == "1 of 2\n");
}

TEST_CASE("other output while a bar is drawn begins on a line of its own") {
  const auto lines = toy::screen(written(100,
                                         [](int) {
                                           etude::ProgressBar bar(stderr, "train", 10);
                                           std::fputs("Stopped after 5 steps\n", stdout);
                                           std::fflush(stdout);
                                           bar.update(10);
                                           std::fputs("[W] a warning of LibTorch\n", stderr);
                                           bar.close();
                                         }),
                                 100);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].starts_with("train   0% "));
  CHECK(lines[1] == "Stopped after 5 steps");
  CHECK(lines[2] == "[W] a warning of LibTorch");
  CHECK(lines[3].starts_with("train 100% "));
  CHECK(lines[4].empty());
}

TEST_CASE("a nested bar shares the line of the outer one, and both end correctly") {
  const auto text = written(100, [](int) {
    etude::ProgressBar outer(stderr, "outer", 10);
    {
      const etude::ProgressBar inner(stderr, "inner", 10);
      etude::print("inside\n");
      outer.update(5);
      outer.set_fields({{"best", "0.03"}});
    }
    etude::print("outside\n");
    etude::ProgressBar last(stderr, "last", 3);
    last.update(3);
    last.close();
    outer.close();
  });
  CHECK(text.find("\router   0% › inner   0% ") != text.npos);
  CHECK(text.find("\router  50%  best 0.03 › inner   0% ") != text.npos);
  const auto lines = toy::screen(text, 100);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "inside");
  CHECK(lines[1] == "outside");
  CHECK(lines[2].starts_with("outer  50% "));  // the last bar's part is gone
  CHECK(lines[3].empty());
}

TEST_CASE("other output while a nested bar is drawn leaves nothing behind but whole lines") {
  const auto lines = toy::screen(written(100,
                                         [](int) {
                                           etude::ProgressBar outer(stderr, "outer", 10);
                                           {
                                             etude::ProgressBar inner(stderr, "inner", 10);
                                             std::fputs("[W] first\n[W] second\n", stderr);
                                             inner.set_fields({});
                                           }
                                           outer.close();
                                         }),
                                 100);
  REQUIRE(lines.size() == 5);
  CHECK(lines[0].starts_with("outer   0% › inner   0% "));
  CHECK(lines[1] == "[W] first");
  CHECK(lines[2] == "[W] second");
  CHECK(lines[3].starts_with("outer   0% "));
  CHECK(lines[4].empty());
}

TEST_CASE("threads may print while a bar is drawn") {
  const auto text = written(100, [](int) {
    etude::ProgressBar bar(stderr, "train", 100);
    std::thread other([] {
      for (int i = 0; i < 100; ++i) etude::print("from a thread\n");
    });
    for (int i = 0; i < 100; ++i) etude::print(stderr, "from the other\n");
    other.join();
    bar.close();
  });
  const auto lines = toy::screen(text, 100);
  REQUIRE(lines.size() == 202);
  CHECK(std::count(lines.begin(), lines.end(), "from a thread") == 100);
  CHECK(std::count(lines.begin(), lines.end(), "from the other") == 100);
}

/// Replaces the logs with the logs of a long training with two metrics.
struct LongLogs {
  void on(etude::Log& e) {
    const bool is_evaluation = e.logs.contains("eval_loss"), is_summary = e.logs.contains("train_loss");
    e.logs = is_evaluation ? etude::Metrics{{"eval_loss", 0.123456789},
                                            {"eval_accuracy", 0.987654321},
                                            {"eval_f1", 0.976543219},
                                            {"eval_runtime", 123.4567},
                                            {"eval_samples_per_second", 1234567.891},
                                            {"eval_steps_per_second", 12345.678},
                                            {"epoch", 12.3456}}
             : is_summary  ? etude::Metrics{{"train_runtime", 12345.6789},
                                            {"train_samples_per_second", 1234567.891},
                                            {"train_steps_per_second", 12345.678},
                                            {"train_loss", 0.123456789},
                                            {"epoch", 12.3456}}
                           : etude::Metrics{{"loss", 0.123456789},
                                            {"non_finite_losses", 12345},
                                            {"grad_norm", 1.23456789e20},
                                            {"learning_rate", 4.98765e-05},
                                            {"epoch", 12.3456}};
  }
};

TEST_CASE("logs fit in 110 columns: a step's is one line, others break between entries") {
  const auto lines =
      toy::screen(written(110, [](int) { etude::Trainer<LongLogs>(logged_training()).train(); }), 110);
  REQUIRE(lines.size() == 8);
  CHECK(lines[0] ==
        "{loss: 0.1235, non_finite_losses: 12345, grad_norm: 1.235e+20, learning_rate: 4.988e-05, epoch: "
        "12.35}");
  CHECK(lines[2] == "{eval_loss: 0.1235, eval_accuracy: 0.9877, eval_f1: 0.9765, eval_runtime: 123.5,");
  CHECK(lines[3] == " eval_samples_per_second: 1.235e+06, eval_steps_per_second: 12346, epoch: 12.35}");
  CHECK(lines[4] ==
        "{train_runtime: 12346, train_samples_per_second: 1.235e+06, train_steps_per_second: 12346,");
  CHECK(lines[5] == " train_loss: 0.1235, epoch: 12.35}");
}

TEST_CASE("with disable_tqdm they break in the same way") {
  auto options = logged_training();
  options.args.disable_tqdm = true;
  const auto text = written(110, [&](int) { etude::Trainer<LongLogs>(options).train(); });
  const auto lines = toy::screen(text, 110);
  REQUIRE(lines.size() == 7);
  CHECK(lines[2].ends_with("eval_runtime: 123.5,"));
  CHECK(lines[3].starts_with(" eval_samples_per_second: "));
  CHECK(text.find('\x1b') == text.npos);
}

TEST_CASE("in a pipe a log is one line, however long") {
  const auto text = written(0, [](int) { etude::Trainer<LongLogs>(logged_training()).train(); });
  CHECK(text.find("eval_runtime: 123.5, eval_samples_per_second: 1.235e+06") != text.npos);
}

struct ThrowsAtTheThirdStep {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) throw std::runtime_error("no");
  }
};

TEST_CASE("when training throws, the bar is closed at its current position") {
  const auto text = written(80, [](int) { etude::Trainer<ThrowsAtTheThirdStep>(logged_training()).train(); });
  const auto lines = toy::screen(text, 80);
  CHECK(lines[lines.size() - 2].starts_with("train  50% "));
  CHECK(std::ranges::count_if(lines, [](const auto& line) { return line.starts_with("train"); }) == 1);
  CHECK(lines.back().empty());
}

struct InterruptedAtTheThirdStep {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) std::raise(SIGINT);
  }
};

TEST_CASE("after SIGINT the bar is closed at its current position") {
  const auto before = std::signal(SIGINT, [](int) {});
  const auto text =
      written(80, [](int) { etude::Trainer<InterruptedAtTheThirdStep>(logged_training()).train(); });
  std::signal(SIGINT, before);
  const auto lines = toy::screen(text, 80);
  CHECK(lines[lines.size() - 2].starts_with("train  75% "));
  CHECK(std::ranges::count_if(lines, [](const auto& line) { return line.starts_with("train"); }) == 1);
  CHECK(lines.back().empty());
}

TEST_CASE("an evaluation outside a training leaves its line with its result") {
  const auto lines =
      toy::screen(written(120, [](int) { etude::Trainer<>(logged_training()).evaluate(); }), 120);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("eval 100% "));
  CHECK(lines[0].find("  eval_loss ") != std::string::npos);
  CHECK(lines[1].empty());
}

TEST_CASE("with disable_tqdm only the logs are printed") {
  auto options = logged_training();
  options.args.disable_tqdm = true;
  const auto lines = toy::screen(written(160, [&](int) { etude::Trainer<>(options).train(); }), 160);
  CHECK(lines.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) CHECK(lines[i].starts_with("{"));
}

TEST_CASE("with report lines only the logs are printed, with quiet nothing") {
  auto options = logged_training();
  options.args.report = etude::ReportMode::lines;
  CHECK(toy::screen(written(160, [&](int) { etude::Trainer<>(options).train(); }), 160).size() == 5);
  options.args.report = etude::ReportMode::quiet;
  CHECK(written(160, [&](int) { etude::Trainer<>(options).train(); }) == "");
}

TEST_CASE("log_lines print of each log what they name, above the bar and without one") {
  auto options = logged_training();
  options.args.log_lines = {"epoch {epoch:.1f} step {step}", "validation {eval_loss:.3f}", "{accuracy}"};
  for (const auto report : {etude::ReportMode::bar, etude::ReportMode::lines}) {
    options.args.report = report;
    const auto lines = toy::screen(written(160, [&](int) { etude::Trainer<>(options).train(); }), 160);
    REQUIRE(lines.size() == (report == etude::ReportMode::bar ? 7 : 6));
    CHECK(lines[0] == "epoch 0.5 step 2");
    CHECK(lines[1] == "epoch 1.0 step 4");
    CHECK(lines[2] == "epoch 1.0 step 4");
    CHECK(std::regex_match(lines[3], std::regex("validation [0-9]+[.][0-9]{3}")));
    CHECK(lines[4] == "epoch 1.0 step 4");
  }
}

TEST_CASE("a line of the bar has the width of the terminal at most, after a resize too") {
  for (const unsigned short columns : std::initializer_list<unsigned short>{120, 80, 40, 20, 10}) {
    const auto text = written(200, [&](int terminal) {
      etude::ProgressBar bar(stderr, "train", 1000);
      winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
      ioctl(terminal, TIOCSWINSZ, &size);
      bar.update(500);
      bar.close();
    });
    const auto line = toy::screen(text, 200).at(0);
    CAPTURE(line);
    CHECK(etude::detail::columns_of(line) < columns);
    CHECK(line.starts_with("train"));
  }
}

TEST_CASE("the time left counts expected pauses as the last one was, and the rate none") {
  const auto text = written(120, [](int) {
    etude::ProgressBar bar(stderr, "train", 300);
    bar.expect_pauses(100);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    bar.update(100);  // 500 a second at most, so at least 0.4 s are left
    bar.pause();
    std::this_thread::sleep_for(std::chrono::milliseconds(2100));
    bar.resume();
    bar.set_fields({});
  });
  const auto last = text.substr(text.rfind("\rtrain"));
  CAPTURE(last);
  CHECK(last.find("100/300  ") != last.npos);
  std::smatch found;
  REQUIRE(std::regex_search(last, found, std::regex("  ([0-9.]+) it/s  00:02  eta 00:0([0-9])")));
  CHECK(std::stod(found[1]) > 100);  // 43 if the pause counted
  CHECK(std::stoi(found[2]) >= 4);   // two more pauses of 2.1 s; 0 without them
}

}  // namespace callbacks_progress_test
