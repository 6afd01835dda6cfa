#pragma once

#include "etude/callbacks/epoch_count.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// Prints a line to standard output when training, an epoch or an evaluation begins or ends. Follows
/// pytorch-accelerated's callback of this name, with the same texts. Prints in the first process of each
/// machine only. An epoch that is resumed midway keeps its number.
struct PrintProgressCallback {
  struct State {
    ETUDE_STRUCT(State, (EpochCount, epochs, "completed epochs"));
  };
  State state = {};

  void on(const TrainBegin& e);
  void on(const EpochBegin& e);
  void on(const TrainingRunEpochEnd& e) { state.epochs.end(e); }
  void on(const EvaluateBegin& e);
  void on(const EvaluationRunBegin& e);
  void on(const EvaluationRunEnd& e);
  void on(const TrainEnd& e);
};

}  // namespace etude::inline v0
