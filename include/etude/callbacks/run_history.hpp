#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/events.hpp"
#include "etude/metrics/metric_history.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The training losses of the epoch under way, in a checkpoint.
struct EpochLossState {
  ETUDE_STRUCT(EpochLossState, (RunningMeanState, losses, "of the update steps"),
               (std::int64_t, examples, "of the update steps", 0),
               (std::vector<double>, group_losses, "losses of the current update's micro-batches"),
               (std::vector<double>, group_shares,
                "each loss's share of the group's mean; 0 if the losses add up to it"),
               (std::vector<std::int64_t>, group_examples, "examples of each micro-batch"));
};

/// Fills a RunHistory, with the names that pytorch-accelerated's trainer uses:
///
/// - `train_loss_epoch`: the mean training loss of an epoch over its examples, regardless of the
/// accumulation; if the epoch ends early, over the examples so far;
/// - every metric of each evaluation (`eval_loss`, `eval_accuracy`), and the loss under a second name:
/// `eval_loss_epoch` at the end of an epoch, `intermediate_eval_loss` within an epoch, and `evaluation_loss`
/// in an `evaluate()` outside of training. With several datasets, each name includes the dataset's name
/// (`eval_news_loss_epoch`).
///
/// `current_epoch` increases with each completed epoch. The history is saved with checkpoints, and a resumed
/// run continues it. Unlike in pytorch-accelerated, the loss isn't divided by the accumulation steps,
/// intermediate losses are kept, and `evaluate()` doesn't clear the history. Put it after callbacks that add
/// to an evaluation's metrics. Copies of the callback share their history.
class RunHistoryCallback {
 public:
  /// Uses a history in memory.
  RunHistoryCallback();
  /// Uses your history. Without `reset_on_train`, a training that isn't resumed appends to it. Throws
  /// ArgumentError for a null pointer.
  explicit RunHistoryCallback(std::shared_ptr<RunHistory> history, bool reset_on_train = true);

  RunHistory& history() const { return *history_; }

  void on(const TrainBegin& e);
  void on(const StepBegin&);
  void on(const ForwardBegin&) { ++micro_batches_; }
  void on(const BackwardEnd& e);
  void on(const StepRestarted&);
  void on(const StepSkipped&) { group_.clear(); }
  void on(const StepEnd& e);
  void on(const EvaluateBegin& e) { prefixes_.emplace_back(e.metric_key_prefix); }
  void on(const Evaluate& e);
  void on(const EvaluateEnd&) {
    if (!prefixes_.empty()) prefixes_.pop_back();
  }
  void on(const EpochEnd& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const TrainEnd&) { is_resumed_ = is_training_ = false; }

  nlohmann::ordered_json state() const;
  void load_state(const nlohmann::ordered_json& saved);

 private:
  void forget_losses();
  std::string loss_name(const std::string& prefix, bool is_intermediate) const;

  std::shared_ptr<RunHistory> history_;
  bool reset_on_train_ = true;
  bool is_resumed_ = false;  // Its state is from a checkpoint.
  bool is_training_ = false;
  bool is_at_end_ = false;             // an epoch has ended, so the next evaluation belongs to it
  std::vector<std::string> prefixes_;  // of the current evaluations

  // The training loss of the epoch: its mean over the examples of the updates, before division for
  // accumulation.
  struct MicroBatch {
    at::Tensor loss;
    double share;
    std::int64_t examples;
  };
  mutable RunningMean losses_;  // weighted so that they sum to the loss of all examples; read when saving
  std::int64_t examples_ = 0;
  std::vector<MicroBatch> group_;
  std::size_t micro_batches_ = 0;  // in the group; an optimizer's reevaluations don't count
  bool is_group_resumed_ = false;  // The current group began before the checkpoint.
};

}  // namespace etude::inline v0
