#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/callbacks/watched_metric.hpp"
#include "etude/events.hpp"
#include "etude/reflect/struct.hpp"

namespace etude {

/// A checkpoint that TopKCheckpointsCallback keeps or is about to.
struct RankedCheckpoint {
  ETUDE_STRUCT(RankedCheckpoint, (double, value, "of the metric"), (std::int64_t, global_step, "its step"));

  friend bool operator==(const RankedCheckpoint&, const RankedCheckpoint&) = default;
};

using RankedCheckpoints = std::map<std::string, RankedCheckpoint>;

/// Keeps the checkpoints of the `k` evaluations with the best `watch_metric`, under names that say what they
/// are: `checkpoint-120-eval_loss=0.2314`. Follows `save_top_k` of PyTorch Lightning's ModelCheckpoint. Of
/// two with one value the earlier stays; a value that isn't finite is never among the best. An evaluation
/// before the first step doesn't count; without `count_intermediate` neither do those in the steps of an
/// epoch, such as StepBasedEvaluationCallback's. A training that ends with nothing kept is warned of.
///
/// They are copies, of hard links where that can be, of checkpoints that the trainer writes to `output_dir`,
/// whose `save_total_limit` neither counts nor removes them. Each of them can be resumed from.
///
/// Throws ArgumentError where training begins for a `k` below 1; MetricError, which lists the names that
/// there are, if no evaluation has `watch_metric`.
struct TopKCheckpointsCallback {
  using this_callback = TopKCheckpointsCallback;
  ETUDE_STRUCT(TopKCheckpointsCallback, (std::int64_t, k, "how many to keep", 3),
               (std::string, watch_metric, "the metric that decides, by its whole name", "eval_loss"),
               (bool, greater_is_better, "the best have the greatest watch_metric", false),
               (std::string, save_dir, "folder for them; empty is top_checkpoints in output_dir", ""),
               (bool, count_intermediate, "evaluations in an epoch's steps count, too", true),
               (CheckpointKeeper, copies, "those that are yet to be made"),
               (RankedCheckpoints, candidates, "those that are yet to be written, by name"),
               (RankedCheckpoints, ranked, "those that are there, by name"),
               (WatchedMetric, watched, "whether evaluations have it"));

  /// The metric that a dry run before the first step looks for.
  std::string watched_metric() const { return watch_metric; }

  void on(const TrainBegin& e);
  void on(const StepBegin&) { watched.throw_if_missing(watch_metric); }
  void on(const EvaluateAll& e);
  // Not const: it doesn't matter where this stands among those who add tensors.
  void on(SaveBegin& e) { copies.on(e); }
  void on(const Save& e);
  void on(const TrainError&) { watched.fail(); }
  void on(const TrainEnd& e);

 private:
  bool is_before(const RankedCheckpoint& a, const RankedCheckpoint& b) const;
  RankedCheckpoints::iterator worst();
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/top_k_checkpoints.ipp"
#endif
