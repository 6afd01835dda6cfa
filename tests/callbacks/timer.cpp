#include "etude/callbacks/timer.hpp"

#include <doctest/doctest.h>
#include <fmt/chrono.h>

#include <chrono>
#include <string>
#include <thread>

#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/reflect/json.hpp"

namespace callbacks_timer_test {

using namespace std::chrono_literals;

/// Steps that take 20 ms.
struct Slow {
  void on(const etude::StepBegin&) const { std::this_thread::sleep_for(20ms); }
};

etude::TrainOutput train(const etude::TrainingArguments& args, etude::TimerCallback timer) {
  return etude::Trainer<Slow, etude::TimerCallback>(toy::options(args, 4), Slow{}, timer).train();
}

etude::TrainingArguments arguments() {
  auto args = toy::arguments();
  args.num_train_epochs = 100;
  return args;
}

TEST_CASE("training stops after its duration") {
  const auto output = train(arguments(), {.duration = "0.05"});
  CHECK(output.global_step >= 1);
  CHECK(output.global_step <= 3);
  CHECK(output.stop_reason == "the training has reached its duration of 0.05");
}

TEST_CASE("a duration is read with its units") {
  const auto output = train(arguments(), {.duration = "50ms"});
  CHECK(output.global_step >= 1);
  CHECK(output.global_step <= 3);
  CHECK(output.stop_reason == "the training has reached its duration of 50ms");
}

TEST_CASE("with epochs as the interval, it stops at the end of one") {
  const auto output = train(arguments(), {.duration = "0.01", .interval = etude::TimerInterval::epoch});
  CHECK(output.global_step == 4);
}

TEST_CASE("training stops at a deadline, and does no step after it") {
  auto output = train(arguments(), {.deadline = "2020-02-29T12:00:00Z"});
  CHECK(output.global_step == 0);
  CHECK(output.stop_reason == "the deadline of 2020-02-29T12:00:00Z has passed");
  const auto soon = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now()) + 2s;
  const auto text =
      fmt::format("{:%Y-%m-%dT%H:%M:%S}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(soon)));
  output = train(arguments(), {.deadline = text});
  CHECK(output.global_step > 0);
  CHECK(output.global_step < 120);
  CHECK(std::chrono::system_clock::now() >= soon);
}

TEST_CASE("without a limit it only measures") {
  auto args = arguments();
  args.num_train_epochs = 1;
  etude::Trainer<Slow, etude::TimerCallback> trainer(toy::options(args, 4));
  CHECK(trainer.train().global_step == 4);
  const auto& timer = trainer.callback<etude::TimerCallback>();
  CHECK(timer.state.time_elapsed >= .08);
  CHECK_FALSE(timer.time_remaining());
  const double first = timer.state.time_elapsed;
  trainer.train();
  CHECK(timer.state.time_elapsed < first + .08);  // A second training restarts the clock.
}

TEST_CASE("the time before a checkpoint counts towards a resumed training") {
  const toy::Folder folder;
  auto args = arguments();
  toy::save_to(folder, args, 2);
  args.max_steps = 4;
  args.num_train_epochs = 1;
  etude::Trainer<Slow, etude::TimerCallback> first(toy::options(args, 4));
  first.train();

  const auto resume = [&](const char* duration) {
    etude::Trainer<Slow, etude::TimerCallback> trainer(toy::options(args, 4), Slow{},
                                                       etude::TimerCallback{.duration = duration});
    auto output = trainer.train({.resume_from_checkpoint = folder / "checkpoint-2"});
    return std::pair(output, trainer.callback<etude::TimerCallback>());
  };
  const auto [stopped, early] = resume("0.03");  // the first two steps took longer
  CHECK(stopped.global_step == 2);
  CHECK(stopped.stop_reason == "the training has reached its duration of 0.03");
  const auto [done, timer] = resume("00:01:00:00");
  CHECK(done.global_step == 4);
  CHECK(timer.state.time_elapsed >= .08);
  CHECK(*timer.time_remaining() == doctest::Approx(3600 - timer.state.time_elapsed));
}

TEST_CASE("durations and deadlines are described in words") {
  CHECK(etude::parse_duration("00:00:00:05") == 5);
  CHECK(etude::parse_duration("01:02:03:04") == 93784);
  CHECK(etude::parse_duration("90") == 90);
  CHECK(etude::parse_duration("0.25") == .25);
  CHECK(etude::parse_duration(".5") == .5);
  CHECK(etude::parse_duration("0") == 0);
  CHECK(etude::parse_duration("1h30m") == 5400);
  CHECK(etude::parse_duration("30s") == 30);
  CHECK(etude::parse_duration("2d") == 172800);
  CHECK(etude::parse_duration("90min") == 5400);
  CHECK(etude::parse_duration("1e3") == 1000);
  for (const char* text :
       {"",      "1:2:3:4", "00:24:00:00", "00:00:60:00", "00:00:00:60", "-1",       "-1h",
        "nan",   "inf",     "infs",        ".",           "1.2.3",       "00:00:05", "00:00:00:05 ",
        "30m1h", "5h30",    "90ba",        "0.5dur",      "1ep",         "100sp"})
    CHECK_THROWS_AS(etude::parse_duration(text), etude::ArgumentError);
  const auto seconds = [](const char* text) {
    return std::chrono::duration_cast<std::chrono::seconds>(etude::parse_deadline(text).time_since_epoch())
        .count();
  };
  CHECK(seconds("1970-01-01T00:00:00Z") == 0);
  CHECK(seconds("2001-09-09T01:46:40Z") == 1'000'000'000);
  CHECK(seconds("2001-09-09T03:16:40+01:30") == 1'000'000'000);
  CHECK(seconds("2001-09-08T20:46:40-05:00") == 1'000'000'000);
  for (const char* text :
       {"", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z", "2026-01-01T00:00:00+1:00", "tomorrow"})
    CHECK_THROWS_AS(etude::parse_deadline(text), etude::ArgumentError);
}

TEST_CASE("options that can't be parsed are refused when training begins") {
  CHECK_THROWS_WITH_AS(
      train(arguments(), {.duration = "an hour"}),
      "duration is 'an hour': must be a time such as 1h30m, 30s or 2d, DD:HH:MM:SS, or a number of seconds",
      etude::ArgumentError);
}

}  // namespace callbacks_timer_test
