#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "etude/callbacks/epoch_loss.hpp"
#include "etude/events.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/run_history.hpp"

namespace etude {

/// Fills a RunHistory, by the names that pytorch-accelerated's trainer records under:
///
/// - `train_loss_epoch`: the mean training loss of an epoch over its examples, whatever the accumulation; of
///   an epoch that ends early, of what there was of it;
/// - every metric of each evaluation under its own name (`eval_loss`, `eval_accuracy`), and its loss once
///   more: as `eval_loss_epoch` at the end of an epoch, `intermediate_eval_loss` in the steps of one, and
///   `evaluation_loss` in an `evaluate()` outside of training. Of several datasets each name has that of its
///   dataset in it (`eval_news_loss_epoch`).
///
/// `current_epoch` moves on where an epoch was gone through. All of it is saved with checkpoints and goes on
/// from there. It differs in that the loss isn't divided by the accumulation steps, in that intermediate
/// losses are kept, and in that `evaluate()` leaves what is recorded as it is. Callbacks that add to the
/// metrics of an evaluation stand before it. Copies of the callback share their history.
class RunHistoryCallback {
 public:
  using this_callback = RunHistoryCallback;
  /// One in memory.
  RunHistoryCallback();
  /// A history of your own. Without `reset_on_train` a training that isn't resumed goes on with what is
  /// there. Throws ArgumentError for a null pointer.
  explicit RunHistoryCallback(std::shared_ptr<RunHistory> history, bool reset_on_train = true);

  RunHistory& history() const { return *history_; }

  void on(const TrainBegin& e);
  void on(const StepBegin& e) { loss_.on(e); }
  void on(const ForwardBegin& e) { loss_.on(e); }
  void on(const BackwardEnd& e) { loss_.on(e); }
  void on(const StepRestarted& e) { loss_.on(e); }
  void on(const StepEnd& e) { loss_.on(e); }
  void on(const EvaluateBegin& e) { prefixes_.emplace_back(e.metric_key_prefix); }
  void on(const Evaluate& e);
  void on(const EvaluateEnd&) {
    if (!prefixes_.empty()) prefixes_.pop_back();
  }
  void on(const EpochEnd& e);
  void on(const TrainingRunEpochEnd& e);
  void on(const TrainEnd&) { goes_on_ = is_training_ = false; }

  nlohmann::ordered_json state() const;
  void load_state(const nlohmann::ordered_json& saved);

 private:
  std::string loss_name(const std::string& prefix, bool is_intermediate) const;

  std::shared_ptr<RunHistory> history_;
  bool reset_on_train_ = true;
  bool goes_on_ = false;  // Its state is from a checkpoint.
  bool is_training_ = false;
  bool is_at_end_ = false;             // of an epoch, where its evaluation belongs
  mutable EpochLoss loss_;             // whose losses are read from a device when they are saved
  std::vector<std::string> prefixes_;  // of the evaluations under way
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/callbacks/impl/run_history.ipp"
#endif
