#include "etude/callbacks/progress.hpp"

#include <doctest/doctest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "common/toy.hpp"

namespace {

/// What `run` writes to standard error (and output, if `both`), as a terminal of that width or, with 0, a
/// pipe gets it.
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

/// The lines that a person sees at the end: what was drawn over is gone.
std::vector<std::string> seen(const std::string& text) {
  std::vector<std::string> lines(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n')
      lines.emplace_back();
    else if (text[i] == '\r')
      lines.back() += text.compare(i + 1, 1, "\n") == 0 ? "" : "\r";
    else
      lines.back() += text[i];
  }
  for (auto& line : lines) {
    if (const auto back = line.rfind('\r'); back != line.npos) line.erase(0, back + 1);
    if (const auto clear = line.find("\x1b[K"); clear != line.npos) line.erase(clear, 3);
  }
  return lines;
}

etude::TrainerOptions logged_training() {
  auto args = toy::arguments();
  args.disable_tqdm = false;
  args.logging_strategy = etude::IntervalStrategy::steps;
  args.logging_steps = 2;
  args.eval_strategy = etude::IntervalStrategy::epoch;
  return toy::options(args, 4, 3);
}

TEST_CASE("on a terminal the bar stands below the logs and ends full") {
  const auto text = written(80, [](int) { etude::Trainer<>(logged_training()).train(); });
  const auto lines = seen(text);
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

TEST_CASE(
    "in a pipe there is one line of the bar, at the end, and nothing that only a terminal understands") {
  const auto text = written(0, [](int) { etude::Trainer<>(logged_training()).train(); });
  CHECK(text.find('\r') == text.npos);
  CHECK(text.find('\x1b') == text.npos);
  CHECK(seen(text).size() == 6);
  CHECK(seen(text)[4].starts_with("train 100%|"));
}

struct ThrowsAtTheThirdStep {
  void on(const etude::StepEnd& e) {
    if (e.state.global_step == 3) throw std::runtime_error("no");
  }
};

TEST_CASE("when training throws, the bar is closed where it stands") {
  const auto text = written(80, [](int) { etude::Trainer<ThrowsAtTheThirdStep>(logged_training()).train(); });
  const auto lines = seen(text);
  CHECK(lines[lines.size() - 2].starts_with("train  "));
  CHECK(lines.back().empty());
}

TEST_CASE("with disable_tqdm only the logs are printed") {
  auto options = logged_training();
  options.args.disable_tqdm = true;
  const auto lines = seen(written(80, [&](int) { etude::Trainer<>(options).train(); }));
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
    const auto line = seen(text)[0];
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

}  // namespace
