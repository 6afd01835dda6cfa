#include "etude/checkpoint/loop_state.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace checkpoint_loop_state_test {

using etude::EpochStage;
using etude::LoopState;
using etude::TrainingStage;
using enum etude::EpochStage;
using enum etude::TrainingStage;

using Names = std::vector<std::string>;

// All allowed transitions, as pairs.
template <class E>
std::vector<std::string> transitions(E etude::LoopState::*part) {
  std::vector<std::string> result;
  for (std::size_t from = 0; from < etude::enum_names<E>.size(); ++from)
    for (std::size_t to = 0; to < etude::enum_names<E>.size(); ++to) {
      LoopState state;
      state.*part = static_cast<E>(from);
      try {
        state.enter(static_cast<E>(to));
        CHECK(state.*part == static_cast<E>(to));
        result.push_back(fmt::format("{} -> {}", etude::enum_names<E>[from], etude::enum_names<E>[to]));
      } catch (const etude::Error&) {
        CHECK(state.*part == static_cast<E>(from));
      }
    }
  return result;
}

TEST_CASE("a training goes through its stages, back into its epochs when it is resumed, and nowhere else") {
  CHECK(transitions(&LoopState::stage) ==
        Names{"starting -> epochs", "starting -> finishing", "epochs -> finishing", "finishing -> epochs",
              "finishing -> finished", "finishing -> done", "finished -> epochs", "finished -> finishing",
              "finished -> done", "done -> epochs", "done -> finishing"});
}

TEST_CASE("an epoch goes through its stages, step by step, and back if it ended early") {
  CHECK(transitions(&LoopState::epoch) ==
        Names{"between -> begun", "between -> epoch_end", "begun -> steps", "begun -> epoch_end",
              "steps -> step_end", "steps -> epoch_end", "step_end -> steps", "step_end -> epoch_end",
              "epoch_end -> between", "epoch_end -> over", "over -> between", "over -> steps",
              "over -> epoch_end"});
}

TEST_CASE("an illegal transition names both ends") {
  LoopState state;
  CHECK(toy::fault_of<etude::Error>([&] { state.enter(step_end); }) ==
        "a training can't go from between to step_end: this is a bug in Etude");
}

TEST_CASE("honouring requests leads out of the stages that wait for it") {
  const auto settled = [](LoopState state) {
    state.settle();
    return state;
  };
  CHECK(settled({epochs, step_end}) == LoopState{epochs, steps});
  CHECK(settled({epochs, epoch_end}) == LoopState{epochs, over});
  CHECK(settled({finishing, between}) == LoopState{finished, between});
  CHECK(settled({finishing, steps}) == LoopState{finished, steps});
  for (const LoopState state : {LoopState{starting, between}, {epochs, steps}, {epochs, over}})
    CHECK(settled(state) == state);
}

TEST_CASE("a resumed training with steps left continues where its end began") {
  const auto continued = [](LoopState state) {
    state.continue_training();
    return state;
  };
  CHECK(continued({finishing, steps}) == LoopState{epochs, epoch_end});  // honours requests first
  CHECK(continued({finishing, over}) == LoopState{epochs, epoch_end});
  CHECK(continued({finishing, epoch_end}) == LoopState{epochs, epoch_end});
  CHECK(continued({finished, over}) == LoopState{epochs, over});
  CHECK(continued({done, between}) == LoopState{epochs, between});
}

}  // namespace checkpoint_loop_state_test
