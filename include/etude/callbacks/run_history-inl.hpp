#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "etude/callbacks/run_history.hpp"
#include "etude/error.hpp"
#include "etude/events.hpp"
#include "etude/linkage.hpp"
#include "etude/reflect/json.hpp"

namespace etude {

ETUDE_INLINE RunHistoryCallback::RunHistoryCallback()
    : RunHistoryCallback(std::make_shared<InMemoryRunHistory>()) {}

ETUDE_INLINE RunHistoryCallback::RunHistoryCallback(std::shared_ptr<RunHistory> history, bool reset_on_train)
    : history_(std::move(history)), reset_on_train_(reset_on_train) {
  if (!history_) throw ArgumentError("RunHistoryCallback: history is a null pointer");
}

ETUDE_INLINE void RunHistoryCallback::on(const TrainBegin&) {
  const bool anew = !std::exchange(goes_on_, false);
  if (anew && reset_on_train_) history_->reset();
  place_.begin(anew);
  loss_.begin(anew);
}

ETUDE_INLINE void RunHistoryCallback::on(const StepBegin& e) {
  place_.on(e);
  loss_.on(e);
}

ETUDE_INLINE void RunHistoryCallback::on(const Evaluate& e) {
  for (const auto& [name, value] : e.metrics)
    if (name != "epoch") history_->update_metric(name, value);
  if (prefixes_.empty()) return;
  const auto& prefix = prefixes_.back();
  const auto loss = e.metrics.find(prefix + "_loss");
  if (loss == e.metrics.end()) return;
  if (const auto name = loss_name(prefix); !name.empty()) history_->update_metric(name, loss->second);
}

ETUDE_INLINE std::string RunHistoryCallback::loss_name(const std::string& prefix) const {
  switch (place_.phase) {
    case EpochPhase::steps:
      return "intermediate_" + prefix + "_loss";
    case EpochPhase::end:
      return prefix + "_loss_epoch";
    case EpochPhase::outside:
      return prefix.starts_with("eval") ? "evaluation" + prefix.substr(4) + "_loss" : "";
    default:
      return "";
  }
}

ETUDE_INLINE void RunHistoryCallback::on(const EpochEnd& e) {
  place_.on(e);
  if (const auto loss = loss_.take()) history_->update_metric("train_loss_epoch", *loss);
}

ETUDE_INLINE void RunHistoryCallback::on(const TrainingRunEpochEnd& e) {
  const auto before = place_.epochs_done;
  place_.on(e);
  history_->set_epoch(history_->current_epoch() + place_.epochs_done - before);
}

ETUDE_INLINE nlohmann::ordered_json RunHistoryCallback::state() const {
  return {{"history", history_->state()},
          {"place", to_json_value(place_)},
          {"epoch_loss", to_json_value(loss_.state())}};
}

ETUDE_INLINE void RunHistoryCallback::load_state(const nlohmann::ordered_json& saved) {
  const auto place = from_json_value<EpochPlace>(saved.at("place"));
  const auto loss = from_json_value<EpochLossState>(saved.at("epoch_loss"));
  history_->load_state(saved.at("history"));
  place_ = place;
  loss_.load_state(loss);
  goes_on_ = true;
}

}  // namespace etude
