#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "etude/callbacks/progress_bar.hpp"
#include "etude/events.hpp"

namespace etude::inline v0 {

/// A progress bar of the training on standard error, replaced by another during an evaluation or a
/// prediction, and the logs above it on standard output. Prints in the first process only, and not at all
/// with `args.disable_tqdm`.
class ProgressCallback {
 public:
  using this_callback = ProgressCallback;
  void on(const TrainBegin& e);
  void on(const StepEnd& e);
  void on(const TrainEnd&);

  void on(const EvaluateBegin& e);
  void on(const PredictBegin& e);
  void on(const PredictionStep&);
  void on(const EvaluateEnd&);
  void on(const PredictEnd&);

  void on(const Log& e);

 private:
  static bool speaks(const Context& e) {
    return e.state.is_world_process_zero && !e.args.disable_tqdm.value_or(false);
  }

  void begin(const Context& e, std::string title);
  void end();

  std::unique_ptr<ProgressBar> training_;
  std::unique_ptr<ProgressBar> prediction_;
  std::int64_t predicted_ = 0;
};

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/progress.ipp"
#endif
