#include "etude/checkpoint/training_phase.hpp"

#include <fmt/format.h>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

bool may_follow(TrainingStage from, TrainingStage to) {
  using enum TrainingStage;
  switch (to) {
    case starting:
      return false;
    case epochs:  // from the end if the training is resumed to do more
      return from != epochs;
    case finishing:
      return from != finishing;
    case finished:
      return from == finishing;
    case done:
      return from == finishing || from == finished;
  }
  return false;
}

bool may_follow(EpochPhase from, EpochPhase to) {
  using enum EpochPhase;
  switch (to) {
    case between:
      return from == epoch_end || from == over;
    case begun:
      return from == between;
    case steps:  // from `over` if the epoch has ended early, and there is more to do now
      return from == begun || from == step_end || from == over;
    case step_end:
      return from == steps;
    case epoch_end:  // from `between` if EpochBegin stops the training, from `over` if it stops a resumed one
      return from != epoch_end;
    case over:
      return from == epoch_end;
  }
  return false;
}

}  // namespace

template <class Phase>
void enter(Phase& phase, Phase next) {
  if (!may_follow(phase, next))
    throw Error(fmt::format("a training can't go from {} to {}: this is a bug in Etude", to_string(phase),
                            to_string(next)));
  phase = next;
}

}  // namespace detail

void TrainingPhase::enter(TrainingStage next) { detail::enter(stage, next); }
void TrainingPhase::enter(EpochPhase next) { detail::enter(epoch, next); }

void TrainingPhase::settle() {
  if (stage == TrainingStage::finishing) enter(TrainingStage::finished);
  if (epoch == EpochPhase::step_end) enter(EpochPhase::steps);
  if (epoch == EpochPhase::epoch_end) enter(EpochPhase::over);
}

void TrainingPhase::continue_training() {
  if (stage == TrainingStage::finishing && epoch_is_open() && epoch != EpochPhase::epoch_end)
    enter(EpochPhase::epoch_end);
  enter(TrainingStage::epochs);
}

}  // namespace etude::inline v0
