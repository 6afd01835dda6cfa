#include "etude/callbacks/run_history.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/error.hpp"
#include "etude/events.hpp"
#include "etude/reflect/json.hpp"

namespace etude::inline v0 {

RunHistoryCallback::RunHistoryCallback() : RunHistoryCallback(std::make_shared<InMemoryRunHistory>()) {}

RunHistoryCallback::RunHistoryCallback(std::shared_ptr<RunHistory> history, bool reset_on_train)
    : history_(std::move(history)), reset_on_train_(reset_on_train) {
  if (!history_) throw ArgumentError("RunHistoryCallback: history is a null pointer");
}

void RunHistoryCallback::on(const TrainBegin&) {
  const bool from_scratch = !std::exchange(is_resumed_, false);
  if (from_scratch && reset_on_train_) history_->reset();
  if (from_scratch) is_at_end_ = false;
  is_training_ = true;
  loss_.begin(from_scratch);
}

void RunHistoryCallback::on(const Evaluate& e) {
  for (const auto& [name, value] : e.metrics)
    if (name != "epoch") history_->update_metric(name, value);
  if (prefixes_.empty()) return;
  const auto& prefix = prefixes_.back();
  const auto loss = e.metrics.find(prefix + "_loss");
  if (loss == e.metrics.end()) return;
  if (const auto name = loss_name(prefix, e.is_intermediate); !name.empty())
    history_->update_metric(name, loss->second);
}

std::string RunHistoryCallback::loss_name(const std::string& prefix, bool is_intermediate) const {
  if (is_intermediate) return "intermediate_" + prefix + "_loss";
  if (is_at_end_) return prefix + "_loss_epoch";
  if (!is_training_ && prefix.starts_with("eval")) return "evaluation" + prefix.substr(4) + "_loss";
  return "";
}

void RunHistoryCallback::on(const EpochEnd& e) {
  is_at_end_ = true;
  if (const auto loss = loss_.take(e.trainer.communicator()))
    history_->update_metric("train_loss_epoch", *loss);
}

void RunHistoryCallback::on(const TrainingRunEpochEnd& e) {
  is_at_end_ = false;
  if (e.is_done) history_->set_epoch(history_->current_epoch() + 1);
}

nlohmann::ordered_json RunHistoryCallback::state() const {
  return {{"history", history_->state()},
          {"is_at_end", is_at_end_},
          {"epoch_loss", to_json_value(loss_.state())}};
}

void RunHistoryCallback::load_state(const nlohmann::ordered_json& saved) {
  const bool is_at_end = saved.value("is_at_end", false);
  const auto loss = from_json_value<EpochLossState>(saved.at("epoch_loss"));
  history_->load_state(saved.at("history"));
  is_at_end_ = is_at_end;
  loss_.load_state(loss);
  is_resumed_ = true;
}

}  // namespace etude::inline v0
