#include "etude/callbacks/run_history.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
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
  if (from_scratch) forget_losses();
  is_training_ = true;
}

void RunHistoryCallback::on(const StepBegin&) {
  if (!std::exchange(is_group_resumed_, false)) group_.clear();
  micro_batches_ = group_.size();
}

void RunHistoryCallback::on(const BackwardEnd& e) {
  if (e.share == 0.0) return;  // This batch only keeps the process in step with the others.
  if (group_.size() < micro_batches_) group_.push_back({e.loss, e.share.value_or(0), e.batch.size});
}

void RunHistoryCallback::on(const StepRestarted&) {
  group_.clear();
  micro_batches_ = 0;
}

void RunHistoryCallback::on(const StepEnd& e) {
  std::int64_t examples = 0;
  for (const auto& part : group_) examples += part.examples;
  // If the losses add up to a mean over items, each one gets the number of the group's examples over all
  // processes as its weight. All processes have the same number.
  const auto all = static_cast<double>(examples * e.args.world_size());
  for (const auto& [loss, share, size] : group_)
    losses_.add(loss, share > 0 ? static_cast<double>(size) / share : all);
  examples_ += examples;
  group_.clear();
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
  const auto sums = torch::tensor({losses_.state().sum, static_cast<double>(examples_)}, torch::kDouble);
  e.trainer.communicator().sum(sums);
  if (const auto examples = sums[1].item<double>(); examples > 0)
    history_->update_metric("train_loss_epoch", sums[0].item<double>() / examples);
  forget_losses();
}

void RunHistoryCallback::on(const TrainingRunEpochEnd& e) {
  is_at_end_ = false;
  if (e.is_done) history_->set_epoch(history_->current_epoch() + 1);
}

nlohmann::ordered_json RunHistoryCallback::state() const {
  EpochLossState loss{.losses = losses_.state(), .examples = examples_};
  for (const auto& [value, share, size] : group_) {
    loss.group_losses.push_back(value.item<double>());
    loss.group_shares.push_back(share);
    loss.group_examples.push_back(size);
  }
  return {{"history", history_->state()}, {"is_at_end", is_at_end_}, {"epoch_loss", to_json_value(loss)}};
}

void RunHistoryCallback::load_state(const nlohmann::ordered_json& saved) {
  const bool is_at_end = saved.value("is_at_end", false);
  const auto loss = from_json_value<EpochLossState>(saved.at("epoch_loss"));
  history_->load_state(saved.at("history"));
  is_at_end_ = is_at_end;
  losses_.load_state(loss.losses);
  const auto count = [](std::int64_t n) { return std::clamp<std::int64_t>(n, 0, detail::most_steps); };
  examples_ = count(loss.examples);
  group_.clear();
  const auto micro_batches =
      std::min({loss.group_losses.size(), loss.group_shares.size(), loss.group_examples.size()});
  for (std::size_t i = 0; i < micro_batches; ++i)
    group_.push_back({at::scalar_tensor(loss.group_losses[i], at::kDouble), loss.group_shares[i],
                      count(loss.group_examples[i])});
  is_resumed_ = is_group_resumed_ = true;
}

void RunHistoryCallback::forget_losses() {
  losses_.reset();
  examples_ = 0;
  group_.clear();
  is_group_resumed_ = false;
}

}  // namespace etude::inline v0
