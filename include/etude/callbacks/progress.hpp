#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "etude/base/progress_bar.hpp"
#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

/// Shows a progress bar of the training on standard error, with the latest loss and metrics. The logs appear
/// above it, on standard output, in the formats of `args.log_lines`. An evaluation or a prediction within the
/// training shares the bar's line. Prints in the first process only, and only if `args.report` is bar. If the
/// output is a file or a pipe, it writes a line every ten seconds.
class ProgressCallback {
 public:
  void on(const TrainBegin& e);
  void on(const EpochBegin& e);
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
    return e.state.is_world_process_zero && e.args.report == ReportMode::bar;
  }

  void show_fields(const Context& e);
  void begin(const Context& e, std::string title);
  void show_result(const Metrics& metrics);
  void end();

  std::unique_ptr<ProgressBar> training_;
  std::unique_ptr<ProgressBar> prediction_;
  std::int64_t predicted_ = 0;
  Metrics latest_;
  std::string epoch_;
};

}  // namespace etude::inline v0
