#include "etude/base/progress_line.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

#include "etude/base/text_columns.hpp"

namespace base_progress_line_test {

using etude::detail::ProgressView;
using Views = std::vector<ProgressView>;

const ProgressView train{.title = "train",
                         .done = 540,
                         .total = 1200,
                         .elapsed = 12.7,
                         .rate = 44.1,
                         .left = 15,
                         .fields = {{"loss", "0.3123"},
                                    {"epoch", "2/5"},
                                    {"eval_accuracy", "0.9712"},
                                    {"eval_loss", "0.412"},
                                    {"lr", "4.8e-05"},
                                    {"", "8 processes"}}};
const ProgressView eval{.title = "eval", .done = 15, .total = 50, .elapsed = 1.2, .rate = 12.1, .left = 2.9};
const ProgressView trial{
    .title = "trial 3/20", .done = 2, .total = 20, .elapsed = 60, .fields = {{"best", "0.031"}}};

std::string line(const Views& bars, int columns, bool unicode = true, bool colors = false) {
  return etude::detail::progress_line(bars, {.columns = columns, .unicode = unicode, .colors = colors});
}

TEST_CASE("a narrower line has fewer fields") {
  CHECK(line({train}, 199) ==
        "train  45% ██████████████████──────────────────────  540/1200  44.1 it/s  00:12  eta 00:15  "
        "loss 0.3123  epoch 2/5  eval_accuracy 0.9712  eval_loss 0.412  lr 4.8e-05  8 processes");
  CHECK(line({train}, 119) ==
        "train  45% ██████████▎────────────  540/1200  44.1 it/s  00:12  eta 00:15  loss 0.3123  epoch 2/5  "
        "eval_accuracy 0.9712");
  CHECK(line({train}, 79) ==
        "train  45% ███████▏────────  540/1200  44.1 it/s  00:12  eta 00:15  loss 0.3123");
  CHECK(line({train}, 59) == "train  45% ██████▎───────  540/1200  eta 00:15  loss 0.3123");
  CHECK(line({train}, 39) == "train  45% █▊──  eta 00:15  loss 0.3123");
  CHECK(line({train}, 19) == "train  45% ███▌────");
  CHECK(line({train}, 12) == "train  45%");
  CHECK(line({train}, 8) == "train");
  CHECK(line({train}, 3) == "tra");
  CHECK(line({train}, 0).empty());
}

TEST_CASE("in ASCII") {
  CHECK(line({train}, 79, false) ==
        "train  45% |######        |  540/1200  44.1 it/s  00:12  eta 00:15  loss 0.3123");
  CHECK(line({train, eval}, 39, false) == "train  45% > eval  30% |####          |");
}

TEST_CASE("the line of a bar within another says how far the other is") {
  CHECK(line({train, eval}, 79) ==
        "train  45% › eval  30% ██████──────────────  15/50  12.1 it/s  00:01  eta 00:02");
  CHECK(line({train, eval}, 119) ==
        "train  45%  loss 0.3123  epoch 2/5 › eval  30% ██████████▊─────────────────────────  15/50  12.1 "
        "it/s  "
        "00:01  eta 00:02");
  CHECK(line({train, eval}, 19) == "eval  30% ██▋──────");
  CHECK(line({trial, train, eval}, 59) == "trial 3/20  10% › train  45% › eval  30% ██─────  eta 00:02");
  CHECK(line({trial, train}, 139).starts_with("trial 3/20  10% › train  45% █"));
  CHECK(line({trial, train}, 199).starts_with("trial 3/20  10%  best 0.031 › train  45% █"));
}

TEST_CASE("colours") {
  CHECK(line({eval}, 19, true, true) == "\x1b[1meval\x1b[0m  30% \x1b[36m██▋\x1b[0m\x1b[2m──────\x1b[0m");
  auto ended = eval;
  ended.done = 50;
  ended.state = ProgressView::State::complete;
  CHECK(line({ended}, 19, true, true) == "\x1b[1meval\x1b[0m 100% \x1b[32m█████████\x1b[0m");
  ended.done = 25;
  ended.state = ProgressView::State::stopped;
  CHECK(line({ended}, 19, false, true) == "\x1b[1meval\x1b[0m  50% |\x1b[33m###\x1b[0m    |");
}

TEST_CASE("100 % means the end, and a total may be 0, exceeded or unknown") {
  CHECK(line({{.title = "train", .done = 9999, .total = 10000}}, 12) == "train  99%");
  CHECK(line({{.title = "train", .done = 0, .total = 0}}, 12) == "train 100%");
  CHECK(line({{.title = "train", .done = 11, .total = 10}}, 12) == "train 100%");
  CHECK(line({{.title = "train", .done = 7, .elapsed = 3, .rate = 0.5}}, 60) == "train 7  2.0 s/it  00:03");
}

TEST_CASE("titles and names with wide characters, and those that would control the terminal") {
  CHECK(line({{.title = "検証", .done = 1, .total = 2}}, 13) == "検証  50%");
  CHECK(line({{.title = "検証", .done = 1, .total = 2}}, 14) == "検証  50% ██──");
  CHECK(line({{.title = "検証", .done = 1, .total = 2}}, 3) == "検");
  CHECK(line({{.title = "a\x1b[2Jb", .done = 1, .total = 2}}, 13) == "a\uFFFD[2Jb  50%");
}

TEST_CASE("a line never has more columns than it may") {
  auto wide = train;
  wide.fields = {{"損失", "0.5"}, {"精度⚡", "0.9712"}};
  for (const auto& bars : {Views{train}, Views{wide}, Views{eval}, Views{train, eval}, Views{wide, eval},
                           Views{trial, train, eval}})
    for (int columns = 0; columns <= 200; ++columns)
      for (const bool unicode : {false, true})
        for (const bool colors : {false, true}) {
          const auto shown =
              std::regex_replace(line(bars, columns, unicode, colors), std::regex("\x1b\\[[0-9;]*m"), "");
          CAPTURE(shown);
          CHECK(etude::detail::columns_of(shown) <= static_cast<std::size_t>(columns));
        }
}

TEST_CASE("a file gets all fields and no bar") {
  CHECK(etude::detail::plain_progress_line(train) ==
        "train  45%  540/1200  44.1 it/s  00:12  eta 00:15  loss 0.3123  epoch 2/5  eval_accuracy 0.9712  "
        "eval_loss 0.412  lr 4.8e-05  8 processes");
}

TEST_CASE("clocks") {
  CHECK(etude::clock_text(65) == "01:05");
  CHECK(etude::clock_text(3725) == "1:02:05");
  CHECK(etude::clock_text(-1) == "00:00");
  CHECK(etude::clock_text(1e300) == "1000000:00:00");
}

}  // namespace base_progress_line_test
