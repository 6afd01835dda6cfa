#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "etude/callbacks/progress.hpp"
#include "etude/callbacks/progress_bar.hpp"
#include "etude/console.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/events.hpp"
#include "etude/linkage.hpp"
#include "etude/message.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude {
namespace detail {

/// Logs as lines that a terminal has room for, broken between entries; one line where nobody says how wide it
/// is.
inline std::string log_lines(const Metrics& logs, std::optional<int> columns) {
  auto text = fmt::format("{}\n", logs);
  if (!columns) return text;
  const auto width = static_cast<std::size_t>(*columns);
  for (std::size_t line = 0; text.size() - line > width;) {
    auto end = text.rfind(", ", line + width - 2);
    if (end == text.npos || end <= line) end = text.find(", ", line);  // an entry is wider than the terminal
    if (end == text.npos) break;
    text[++end] = '\n';
    text.insert(++end, " ");
    line = end;
  }
  return text;
}

}  // namespace detail

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
  auto logs = e.logs;
  logs.erase("total_flos");
  write_text(stdout, detail::log_lines(logs, detail::terminal_columns(stdout)));
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

}  // namespace etude
