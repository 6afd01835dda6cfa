#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "etude/base/counting.hpp"
#include "etude/base/linkage.hpp"
#include "etude/callbacks/printer.hpp"
#include "etude/callbacks/progress.hpp"
#include "etude/callbacks/progress_bar.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"

namespace etude::inline v0 {

ETUDE_INLINE void ProgressCallback::on(const TrainBegin& e) {
  if (speaks(e))
    training_ = std::make_unique<ProgressBar>(
        stderr, "train",
        e.state.max_steps < detail::most_steps ? std::optional(e.state.max_steps) : std::nullopt,
        e.state.global_step);
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
  if (training_) detail::print_logs(e.logs);
}

ETUDE_INLINE void ProgressCallback::begin(const Context& e, std::string title) {
  if (!speaks(e)) return;
  predicted_ = 0;
  prediction_ = std::make_unique<ProgressBar>(stderr, std::move(title), e.eval_dataloader->size());
}

ETUDE_INLINE void ProgressCallback::end() {
  if (prediction_ && !training_) prediction_->close();
  prediction_.reset();
}

}  // namespace etude::inline v0
