#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "etude/callbacks/progress_bar.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"
#include "etude/message.hpp"

namespace etude {

/// A progress bar of the training on standard error, another in its place while an evaluation or a prediction
/// runs, and the logs above it on standard output. Speaks in the first process only, and not at all with
/// `args.disable_tqdm`.
class ProgressCallback {
 public:
  void on(const TrainBegin& e) {
    if (speaks(e))
      training_ = std::make_unique<ProgressBar>(stderr, "train", e.state.max_steps, e.state.global_step);
  }
  void on(const StepEnd& e) {
    if (training_) training_->update(e.state.global_step);
  }
  void on(const TrainEnd&) {
    if (training_) training_->close();
    training_.reset();
  }

  void on(const EvaluateBegin& e) { begin(e, std::string(e.metric_key_prefix)); }
  void on(const PredictBegin& e) { begin(e, std::string(e.metric_key_prefix)); }
  void on(const PredictionStep&) {
    if (prediction_) prediction_->update(++predicted_);
  }
  void on(const EvaluateEnd&) { end(); }
  void on(const PredictEnd&) { end(); }

  void on(const Log& e) {
    if (!training_) return;
    auto& bar = prediction_ ? *prediction_ : *training_;  // the one that is seen
    bar.erase();
    auto logs = e.logs;
    logs.erase("total_flos");
    write_text(stdout, fmt::format("{}\n", logs));
    bar.redraw();
  }

 private:
  static bool speaks(const Context& e) {
    return e.state.is_world_process_zero && !e.args.disable_tqdm.value_or(false);
  }

  void begin(const Context& e, std::string title) {
    if (!speaks(e)) return;
    if (training_) training_->erase();
    predicted_ = 0;
    prediction_ = std::make_unique<ProgressBar>(stderr, std::move(title), e.eval_dataloader->size());
  }
  void end() {
    if (prediction_ && !training_) prediction_->close();
    prediction_.reset();
    if (training_) training_->redraw();
  }

  std::unique_ptr<ProgressBar> training_;
  std::unique_ptr<ProgressBar> prediction_;
  std::int64_t predicted_ = 0;
};

}  // namespace etude
