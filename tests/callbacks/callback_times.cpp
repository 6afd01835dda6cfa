#include "etude/callbacks/callback_times.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "common/toy.hpp"

namespace callbacks_callback_times_test {

struct Slow {
  void on(const etude::StepEnd&) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }
};
struct Quick {
  int calls = 0;
  void on(const etude::StepEnd&) { ++calls; }
  void on(const etude::EpochEnd&) {}
};
struct Throws {
  void on(const etude::StepEnd&) { throw std::runtime_error("in a callback"); }
};

const etude::CallbackTimes::Row* row_of(const std::vector<etude::CallbackTimes::Row>& rows,
                                        std::string_view callback, std::string_view event) {
  for (const auto& row : rows)
    if (row.callback == callback && row.event == event) return &row;
  return nullptr;
}

TEST_CASE("each callback's time is measured for each event, and the slowest is listed first") {
  etude::Trainer<etude::NoDefaultCallbacks, Quick, etude::CallbackTimes, Slow> trainer(
      toy::options(toy::arguments(), 5));
  trainer.train();
  const auto rows = trainer.callback<etude::CallbackTimes>().rows();
  CHECK(trainer.callback<Quick>().calls == 5);
  CHECK(rows.front().callback == "Slow");
  const auto* slow = row_of(rows, "Slow", "StepEnd");
  REQUIRE(slow);
  CHECK(slow->calls == 5);
  CHECK(slow->total >= std::chrono::milliseconds(10));
  CHECK(slow->longest >= std::chrono::milliseconds(2));
  CHECK(slow->longest <= slow->total);
  REQUIRE(row_of(rows, "Quick", "EpochEnd"));
  CHECK(row_of(rows, "Quick", "EpochEnd")->calls == 1);
  CHECK_FALSE(row_of(rows, "CallbackTimes", "TrainEnd"));
  CHECK(trainer.callback<etude::CallbackTimes>().table().find("Slow") != std::string::npos);
}

TEST_CASE("a second training is measured from zero, and one that throws is measured too") {
  etude::Trainer<etude::NoDefaultCallbacks, etude::CallbackTimes, Quick, Throws> trainer(
      toy::options(toy::arguments(), 3));
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_WITH(trainer.train(), "in a callback");
    const auto rows = trainer.callback<etude::CallbackTimes>().rows();
    REQUIRE(row_of(rows, "Throws", "StepEnd"));
    CHECK(row_of(rows, "Throws", "StepEnd")->calls == 1);
    CHECK(row_of(rows, "Quick", "EpochEnd")->calls == 1);
  }
}

}  // namespace callbacks_callback_times_test
