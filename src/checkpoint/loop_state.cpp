#include "etude/checkpoint/loop_state.hpp"

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

bool may_follow(EpochStage from, EpochStage to) {
  using enum EpochStage;
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

template <class Stage>
void enter(Stage& stage, Stage next) {
  if (!may_follow(stage, next))
    throw Error(fmt::format("a training can't go from {} to {}: this is a bug in Etude", to_string(stage),
                            to_string(next)));
  stage = next;
}

}  // namespace detail

void LoopState::enter(TrainingStage next) { detail::enter(stage, next); }
void LoopState::enter(EpochStage next) { detail::enter(epoch, next); }

void LoopState::settle() {
  if (stage == TrainingStage::finishing) enter(TrainingStage::finished);
  if (epoch == EpochStage::step_end) enter(EpochStage::steps);
  if (epoch == EpochStage::epoch_end) enter(EpochStage::over);
}

void LoopState::continue_training() {
  if (stage == TrainingStage::finishing && epoch_is_open() && epoch != EpochStage::epoch_end)
    enter(EpochStage::epoch_end);
  enter(TrainingStage::epochs);
}

}  // namespace etude::inline v0
