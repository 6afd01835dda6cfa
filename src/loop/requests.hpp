#pragma once

#include <functional>
#include <utility>

#include "checkpoints.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/metrics/metrics.hpp"
#include "work_under_way.hpp"

namespace etude::inline v0 {

/// Honours the requests that callbacks make through `TrainerControl`. `TrainLoop` calls it at these moments:
///
/// - `honour`: after `StepEnd`; after `EpochEnd` (before `TrainingRunEpochEnd`); at the end of the training
///   (before `TrainEnd`), twice, because the first evaluation may make requests; and in a resumed training
///   that was about to honour requests.
/// - `agree`: after each event in which a process may have asked for something that all must do.
/// - A stop needs no call: `TrainLoop::may_step` looks for it before a step, `TrainLoop::has_epoch` before an
///   epoch, and `Update::run_micro_batches` between two micro-batches.
class Requests {
 public:
  /// All must outlive this.
  Requests(EventSource& events, TrainingCheckpoints& checkpoints, WorkUnderWay& work)
      : events_(events), core_(events.core()), checkpoints_(checkpoints), work_(work) {}

  /// Ends the training when `prune` returns true for an evaluation.
  void prune_by(std::function<bool(const Metrics&, const TrainerState&)> prune) { prune_ = std::move(prune); }

  /// The evaluation of `eval_on_start`, after which the epochs begin.
  void evaluate_at_start();

  /// Gives all processes the requests that handlers or other threads have made in any process.
  void agree();

  /// Honours requests in a fixed order: the log, the evaluation, the checkpoint.
  void honour();

 private:
  void save_best();

  /// Returns whether the model is the best so far and should be kept.
  bool evaluate();

  void log_step();

  LoopState& loop_state() const { return core_.progress.loop; }

  EventSource& events_;
  TrainerCore& core_;
  TrainingCheckpoints& checkpoints_;
  WorkUnderWay& work_;
  std::function<bool(const Metrics&, const TrainerState&)> prune_;
};

}  // namespace etude::inline v0
