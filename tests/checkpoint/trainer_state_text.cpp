#include "etude/checkpoint/trainer_state_text.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <string>

#include "etude/trainer_state.hpp"

namespace checkpoint_trainer_state_text_test {

etude::LogEntry line(double loss, int step) {
  return {{"loss", loss}, {"note", "a \"quoted\"\nline, [] and : \"NaN\""}, {"step", step}};
}

void check_equal(etude::TrainerStateText& text, etude::TrainerState& state) {
  const auto before = state;
  CHECK(text.of(state) == etude::trainer_state_text(state));
  CHECK(state == before);
}

TEST_CASE("a text that is updated repeatedly equals one written at once, for any history") {
  etude::TrainerState state;
  state.stateful_callbacks["Mine"] = {{"log_history", nlohmann::json::array()}};
  etude::TrainerStateText text;
  check_equal(text, state);
  for (int step = 1; step <= 4; ++step) {
    state.global_step = step;
    state.log_history.push_back(line(step == 2 ? std::numeric_limits<double>::infinity() : 0.5 / step, step));
    if (step == 3) state.log_history.push_back({});
    check_equal(text, state);
    check_equal(text, state);
  }
}

TEST_CASE("only lines that are marked as changed are written again") {
  etude::TrainerState state;
  for (int step = 0; step < 3; ++step) state.log_history.push_back(line(1, step));
  etude::TrainerStateText text;
  text.of(state);
  const auto old = text.of(state);
  state.log_history[1] = line(2, 1);
  CHECK(text.of(state) == old);
  text.forget_from(3);
  CHECK(text.of(state) == old);
  text.forget_from(1);
  check_equal(text, state);
  state.log_history.resize(1);
  text.forget_from(1);
  check_equal(text, state);
}

}  // namespace checkpoint_trainer_state_text_test
