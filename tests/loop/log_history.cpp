#include "etude/loop/log_history.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "etude/checkpoint/trainer_state_text.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/trainer_state.hpp"

namespace loop_log_history_test {

TEST_CASE("lines have their step, and a NaN no sign") {
  etude::TrainerState state;
  etude::LogHistory history(state);
  state.global_step = 3;
  etude::Metrics logs{{"loss", -std::numeric_limits<double>::quiet_NaN()}, {"rate", 0.5}};
  CHECK(history.add(logs) == 0);
  CHECK_FALSE(std::signbit(logs.at("loss")));
  REQUIRE(state.log_history.size() == 1);
  CHECK(state.log_history[0].at("step") == 3);
  CHECK(state.log_history[0].at("rate") == 0.5);
  etude::Metrics more{{"loss", 2}};
  CHECK(history.add(more) == 1);
  history.set(0, more);
  CHECK_FALSE(state.log_history[0].contains("rate"));
}

TEST_CASE("the text follows lines that are added, replaced and dropped") {
  etude::TrainerState state;
  etude::LogHistory history(state);
  etude::Metrics logs{{"loss", 1}};
  for (int i = 0; i < 3; ++i) history.add(logs);
  CHECK(history.state_text() == etude::trainer_state_text(state));
  etude::Metrics other{{"loss", 7}};
  history.set(1, other);
  CHECK(history.state_text() == etude::trainer_state_text(state));
  history.drop_from(1);
  CHECK(state.log_history.size() == 1);
  CHECK(history.state_text() == etude::trainer_state_text(state));
  history.add(other);
  CHECK(history.state_text() == etude::trainer_state_text(state));
  state = {};
  history.begin_training();
  history.add(other);
  CHECK(history.state_text() == etude::trainer_state_text(state));
}

}  // namespace loop_log_history_test
