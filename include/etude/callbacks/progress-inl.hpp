#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "etude/callbacks/progress.hpp"
#include "etude/callbacks/progress_bar.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"
#include "etude/linkage.hpp"
#include "etude/message.hpp"

namespace etude {

ETUDE_INLINE void ProgressCallback::on(const TrainBegin& e) {
  if (speaks(e))
    training_ = std::make_unique<ProgressBar>(stderr, "train", e.state.max_steps, e.state.global_step);
}

ETUDE_INLINE void ProgressCallback::on(const StepEnd& e) {
  if (training_) training_->update(e.state.global_step);
}

ETUDE_INLINE void ProgressCallback::on(const TrainEnd&) {
  if (training_) training_->close();
  training_.reset();
}

ETUDE_INLINE void ProgressCallback::on(const EvaluateBegin& e) { begin(e, std::string(e.metric_key_prefix)); }

ETUDE_INLINE void ProgressCallback::on(const PredictBegin& e) { begin(e, std::string(e.metric_key_prefix)); }

ETUDE_INLINE void ProgressCallback::on(const PredictionStep&) {
  if (prediction_) prediction_->update(++predicted_);
}

ETUDE_INLINE void ProgressCallback::on(const EvaluateEnd&) { end(); }

ETUDE_INLINE void ProgressCallback::on(const PredictEnd&) { end(); }

ETUDE_INLINE void ProgressCallback::on(const Log& e) {
  if (!training_) return;
  auto& bar = prediction_ ? *prediction_ : *training_;  // the one that is seen
  bar.erase();
  auto logs = e.logs;
  logs.erase("total_flos");
  write_text(stdout, fmt::format("{}\n", logs));
  bar.redraw();
}

ETUDE_INLINE void ProgressCallback::begin(const Context& e, std::string title) {
  if (!speaks(e)) return;
  if (training_) training_->erase();
  predicted_ = 0;
  prediction_ = std::make_unique<ProgressBar>(stderr, std::move(title), e.eval_dataloader->size());
}

ETUDE_INLINE void ProgressCallback::end() {
  if (prediction_ && !training_) prediction_->close();
  prediction_.reset();
  if (training_) training_->redraw();
}

}  // namespace etude
