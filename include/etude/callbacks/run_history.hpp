#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/callbacks/epoch_loss.hpp"
#include "etude/events.hpp"
#include "etude/metrics/metric_history.hpp"
#include "etude/metrics/metrics.hpp"

namespace etude::inline v0 {

/// Fills a RunHistory, with the names that pytorch-accelerated's trainer uses:
///
/// - `train_loss_epoch`: the mean training loss of an epoch over its examples, whatever the accumulation; if
/// the epoch ends early, over its examples so far;
/// - every metric of each evaluation under its own name (`eval_loss`, `eval_accuracy`), and its loss again:
/// as `eval_loss_epoch` at the end of an epoch, `intermediate_eval_loss` within one, and `evaluation_loss` in
/// an `evaluate()` outside of training. With several datasets each name includes the dataset's
/// (`eval_news_loss_epoch`).
///
/// `current_epoch` increases with each completed epoch. The history is saved with checkpoints, and a resumed
/// run continues it. Unlike in pytorch-accelerated, the loss isn't divided by the accumulation steps,
/// intermediate losses are kept, and `evaluate()` doesn't clear the history. Put it after callbacks that add
/// to an evaluation's metrics. Copies of the callback share their history.
class RunHistoryCallback {
 public:
  using this_callback = RunHistoryCallback;
  /// Uses a history in memory.
  RunHistoryCallback();
  /// Uses your own history. Without `reset_on_train` a training that isn't resumed appends to it. Throws
  /// ArgumentError for a null pointer.
  explicit RunHistoryCallback(std::shared_ptr<RunHistory> history, bool reset_on_train = true);

  RunHistory& history() const { return *history_; }

  void on(const TrainBegin& e);
  void on(const StepBegin& e) { loss_.on(e); }
  void on(const ForwardBegin& e) { loss_.on(e); }
  void on(const BackwardEnd& e) { loss_.on(e); }
  void on(const StepRestarted& e) { loss_.on(e); }
  void on(const StepSkipped& e) { loss_.on(e); }
  void on(const StepEnd& e) { loss_.on(e); }
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
  std::string loss_name(const std::string& prefix, bool is_intermediate) const;

  std::shared_ptr<RunHistory> history_;
  bool reset_on_train_ = true;
  bool is_resumed_ = false;  // Its state is from a checkpoint.
  bool is_training_ = false;
  bool is_at_end_ = false;             // of an epoch, to which its evaluation belongs
  mutable EpochLoss loss_;             // its losses are read from a device when they are saved
  std::vector<std::string> prefixes_;  // those of the current evaluations
};

}  // namespace etude::inline v0
