#include "etude/checkpoint/training_phase.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace checkpoint_training_phase_test {

using etude::EpochPhase;
using etude::TrainingPhase;
using etude::TrainingStage;
using enum etude::EpochPhase;
using enum etude::TrainingStage;

using Names = std::vector<std::string>;

// All allowed transitions, as pairs.
template <class E>
std::vector<std::string> transitions(E etude::TrainingPhase::*part) {
  std::vector<std::string> result;
  for (std::size_t from = 0; from < etude::enum_names<E>.size(); ++from)
    for (std::size_t to = 0; to < etude::enum_names<E>.size(); ++to) {
      TrainingPhase phase;
      phase.*part = static_cast<E>(from);
      try {
        phase.enter(static_cast<E>(to));
        CHECK(phase.*part == static_cast<E>(to));
        result.push_back(fmt::format("{} -> {}", etude::enum_names<E>[from], etude::enum_names<E>[to]));
      } catch (const etude::Error&) {
        CHECK(phase.*part == static_cast<E>(from));
      }
    }
  return result;
}

TEST_CASE("a training goes through its stages, back into its epochs when it is resumed, and nowhere else") {
  CHECK(transitions(&TrainingPhase::stage) ==
        Names{"starting -> epochs", "starting -> finishing", "epochs -> finishing", "finishing -> epochs",
              "finishing -> finished", "finishing -> done", "finished -> epochs", "finished -> finishing",
              "finished -> done", "done -> epochs", "done -> finishing"});
}

TEST_CASE("an epoch goes through its phases, step by step, and back if it ended early") {
  CHECK(transitions(&TrainingPhase::epoch) ==
        Names{"between -> begun", "between -> epoch_end", "begun -> steps", "begun -> epoch_end",
              "steps -> step_end", "steps -> epoch_end", "step_end -> steps", "step_end -> epoch_end",
              "epoch_end -> between", "epoch_end -> over", "over -> between", "over -> steps",
              "over -> epoch_end"});
}

TEST_CASE("an illegal transition names both ends") {
  TrainingPhase phase;
  CHECK(toy::fault_of<etude::Error>([&] { phase.enter(step_end); }) ==
        "a training can't go from between to step_end: this is a bug in Etude");
}

TEST_CASE("honouring requests leads out of the phases that wait for it") {
  const auto settled = [](TrainingPhase phase) {
    phase.settle();
    return phase;
  };
  CHECK(settled({epochs, step_end}) == TrainingPhase{epochs, steps});
  CHECK(settled({epochs, epoch_end}) == TrainingPhase{epochs, over});
  CHECK(settled({finishing, between}) == TrainingPhase{finished, between});
  CHECK(settled({finishing, steps}) == TrainingPhase{finished, steps});
  for (const TrainingPhase phase : {TrainingPhase{starting, between}, {epochs, steps}, {epochs, over}})
    CHECK(settled(phase) == phase);
}

TEST_CASE("a resumed training with steps left continues where its end began") {
  const auto continued = [](TrainingPhase phase) {
    phase.continue_training();
    return phase;
  };
  CHECK(continued({finishing, steps}) == TrainingPhase{epochs, epoch_end});  // requests first
  CHECK(continued({finishing, over}) == TrainingPhase{epochs, epoch_end});
  CHECK(continued({finishing, epoch_end}) == TrainingPhase{epochs, epoch_end});
  CHECK(continued({finished, over}) == TrainingPhase{epochs, over});
  CHECK(continued({done, between}) == TrainingPhase{epochs, between});
}

}  // namespace checkpoint_training_phase_test
