#include "etude/callbacks/progress.hpp"

#include <doctest/doctest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/screen.hpp"
#include "common/toy.hpp"

namespace callbacks_progress_test {

/// The output of `run` on standard error, in a terminal with so many columns or, if 0, in a pipe.
std::string written(unsigned short columns, const std::function<void(int terminal)>& run) {
  std::array<int, 2> ends{};  // 0 is read, 1 written
  if (columns > 0) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(openpty(&ends[0], &ends[1], nullptr, nullptr, &size) == 0);
  } else {
    REQUIRE(pipe(ends.data()) == 0);
  }
  std::fflush(stdout);
  std::fflush(stderr);
  const int saved_out = dup(STDOUT_FILENO), saved_error = dup(STDERR_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  dup2(ends[1], STDERR_FILENO);
  std::string text;
  std::thread reader([&] {
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = read(ends[0], buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
      if (text.find('\x04') != text.npos) break;
    }
  });
  try {
    run(ends[1]);
  } catch (const std::runtime_error&) {
  }
  std::fflush(stdout);
  std::fflush(stderr);
  REQUIRE(write(ends[1], "\x04", 1) == 1);
  reader.join();
  dup2(saved_out, STDOUT_FILENO);
  dup2(saved_error, STDERR_FILENO);
  for (const int end : {ends[0], ends[1], saved_out, saved_error}) close(end);
  text.erase(text.find('\x04'));
  return text;
}

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
  CHECK(lines[4].starts_with("train 100%|"));
  CHECK(lines[4].find(" 4/4 [") != std::string::npos);
  CHECK(lines[5].empty());
  CHECK(text.find("eval  ") != text.npos);
}

TEST_CASE("in a pipe the bar is one line, at the end, without terminal control codes") {
  const auto text = written(0, [](int) { etude::Trainer<>(logged_training()).train(); });
  CHECK(text.find('\r') == text.npos);
  CHECK(text.find('\x1b') == text.npos);
  const auto lines = toy::screen(text, 1000);
  REQUIRE(lines.size() == 6);
  CHECK(lines[4].starts_with("train 100%|"));
}

/// Prints while the bar of the training, and that of an evaluation, is drawn.
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
  CHECK(lines[7].starts_with("train 100%|"));
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
  CHECK(lines[0].starts_with("train   0%|"));
  CHECK(lines[1] == "Stopped after 5 steps");
  CHECK(lines[2] == "[W] a warning of LibTorch");
  CHECK(lines[3].starts_with("train 100%|"));
  CHECK(lines[4].empty());
}

TEST_CASE("a nested bar covers the outer one, and both end correctly") {
  const auto text = written(100, [](int) {
    etude::ProgressBar outer(stderr, "outer", 10);
    {
      const etude::ProgressBar inner(stderr, "inner", 10);
      etude::print("inside\n");
      outer.update(5);
    }
    etude::print("outside\n");
    etude::ProgressBar last(stderr, "last", 3);
    last.update(3);
    last.close();
  });
  const auto lines = toy::screen(text, 100);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0] == "inside");
  CHECK(lines[1] == "outside");
  CHECK(lines[2].starts_with("last 100%|"));
  CHECK(lines[3].empty());  // that of the outer bar, which is gone
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

/// Replaces the logs with those of a long training with two metrics.
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
  CHECK(lines[lines.size() - 2].starts_with("train  "));
  CHECK(lines.back().empty());
}

TEST_CASE("with disable_tqdm only the logs are printed") {
  auto options = logged_training();
  options.args.disable_tqdm = true;
  const auto lines = toy::screen(written(160, [&](int) { etude::Trainer<>(options).train(); }), 160);
  CHECK(lines.size() == 5);
  for (std::size_t i = 0; i < 4; ++i) CHECK(lines[i].starts_with("{"));
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
    const auto cells = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    CHECK(cells < columns);
    CHECK(cells > 0);
  }
}

TEST_CASE("the text of a line") {
  CHECK(etude::progress_line("train", 50, 200, 10, 0, 60, false) ==
        "train  25%|####             | 50/200 [00:10<00:30, 5.0 it/s]");
  CHECK(
      etude::progress_line("train", 60, 100, 20, 50, 50, false).ends_with(" 60/100 [00:20<01:20, 2.0 s/it]"));
  CHECK(etude::progress_line("eval", 7, std::nullopt, 3.5, 0, 60, false) == "eval 7 [00:03, 2.0 it/s]");
  CHECK(etude::clock_text(3725) == "1:02:05");
}

}  // namespace callbacks_progress_test
