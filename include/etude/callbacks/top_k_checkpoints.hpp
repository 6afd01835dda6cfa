#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/callbacks/watched_metric.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// A checkpoint that TopKCheckpointsCallback keeps or is about to keep.
struct RankedCheckpoint {
  ETUDE_STRUCT(RankedCheckpoint, (double, value, "of the metric"), (std::int64_t, global_step, "its step"));

  friend bool operator==(const RankedCheckpoint&, const RankedCheckpoint&) = default;
};

using RankedCheckpoints = std::map<std::string, RankedCheckpoint>;

/// Keeps the checkpoints of the `k` evaluations with the best `watch_metric`, under descriptive names:
/// `checkpoint-120-eval_loss=0.2314`. Follows `save_top_k` of PyTorch Lightning's ModelCheckpoint. If two
/// values are equal, the earlier checkpoint is kept; a non-finite value is never among the best. An
/// evaluation before the first step doesn't count; without `count_intermediate`, neither do evaluations
/// within an epoch, such as StepBasedEvaluationCallback's. Warns if a training ends without a kept
/// checkpoint.
///
/// The kept checkpoints are copies, by hard links if possible, of checkpoints in `output_dir`.
/// `save_total_limit` neither counts nor removes them. A training can be resumed from each of them.
///
/// Throws ArgumentError at the beginning of training for a `k` below 1; MetricError, listing the available
/// names, if no evaluation has `watch_metric`.
struct TopKCheckpointsCallback {
  ETUDE_STRUCT(
      TopKCheckpointsCallback, (std::int64_t, k, "number of checkpoints to keep" | at_least(1), 3),
      (std::string, watch_metric, "full name of the metric to watch", "eval_loss"),
      (std::optional<bool>, greater_is_better,
       "greater is better; unset: as in the arguments, if it is their metric, else true unless it is "
       "a loss"),
      (std::string, save_dir, "folder of the copies; empty is top_checkpoints in output_dir", ""),
      (bool, count_intermediate, "evaluations within an epoch also count", true));

  struct State {
    ETUDE_STRUCT(State, (CheckpointKeeper, copies, "copies not made yet"),
                 (RankedCheckpoints, candidates, "checkpoints not written yet, by name"),
                 (RankedCheckpoints, ranked, "existing copies, by name"),
                 (WatchedMetric, watched, "whether evaluations have the metric"));
  };
  State state = {};

  /// The metric that a dry run before the first step looks for.
  std::string watched_metric() const { return watch_metric; }

  void on(const TrainBegin& e);
  void on(const StepBegin&) { state.watched.throw_if_missing(watch_metric); }
  void on(const EvaluateAll& e);
  // Takes `SaveBegin&`, because a handler of `const SaveBegin&` would have to come after all callbacks that
  // add tensors.
  void on(SaveBegin& e) { state.copies.on(e); }
  void on(const Save& e);
  void on(const TrainError&) { state.watched.fail(); }
  void on(const TrainEnd& e);

  bool is_greatest_best = false;  ///< `greater_is_better`, resolved.

 private:
  bool is_before(const RankedCheckpoint& a, const RankedCheckpoint& b) const;
  RankedCheckpoints::iterator worst();
};

}  // namespace etude::inline v0
