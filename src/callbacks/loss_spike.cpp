#include "etude/callbacks/loss_spike.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "etude/any_trainer.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/optim/named_optimizer.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/parallel/shards.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Copies into the existing tensors of these names, to avoid allocating each time.
void copy_named(const std::vector<NamedTensor>& from, std::vector<NamedTensor>& to) {
  std::unordered_map<std::string, torch::Tensor> old(to.begin(), to.end());
  std::vector<NamedTensor> copies;
  for (const auto& [name, tensor] : from) {
    auto& copy = old[name];
    if (copy.defined() && copy.sizes() == tensor.sizes() && copy.scalar_type() == tensor.scalar_type() &&
        copy.device() == tensor.device())
      copy.copy_(tensor);
    else
      copy = tensor.detach().clone();
    copies.emplace_back(name, copy);
  }
  to = std::move(copies);
}

}  // namespace

}  // namespace detail

void LossSpikeCallback::on(const TrainBegin& e) {
  check(e);
  if (e.state.global_step == 0) state = {};
  count = state.pending.size() - (state.is_half_done && !state.pending.empty() ? 1 : 0);
  is_first = true;
  unseen.reset();
  slots.clear();
  keep(e);
}

void LossSpikeCallback::check(const Context& e) const {
  etude::detail::check_fields(*this);
  if (min_losses > window)
    throw ArgumentError(fmt::format("min_losses is {}: must be at most window, {}", min_losses, window));
  if (e.optimizers.size() > 1)
    throw ArgumentError("LossSpikeCallback can't be used with several optimizers, of which it restores one");
  if (e.optimizer->needs_closure())
    throw ArgumentError(
        fmt::format("optim is {}: LossSpikeCallback needs an optimizer that evaluates its loss once a step",
                    e.args.optim));
}

void LossSpikeCallback::on(const BackwardEnd& e) {
  const torch::NoGradGuard no_grad;
  if (!unseen.defined()) {
    unseen = torch::zeros({check_every_n_steps}, e.loss.options().dtype(torch::kDouble));
    slots = unseen.split(1);
    if (e.args.process_index() == 0)
      for (std::size_t i = 0; i < state.pending.size() && i < slots.size(); ++i)
        slots[i].fill_(state.pending[i]);
    state.pending.clear();
    if (good_weights.empty()) keep(e);  // added in the middle of a training
  }
  const auto loss = e.loss.dim() > 1 ? e.loss.reshape({1}) : e.loss;
  if (std::exchange(is_first, false))
    slots[count].copy_(loss);
  else
    slots[count].add_(loss);
}

void LossSpikeCallback::on(const StepEnd& e) {
  const auto step = e.state.global_step;
  ++count;
  is_first = true;
  if (step % check_every_n_steps == 0 || step >= e.state.max_steps) look(e);
}

void LossSpikeCallback::on(SaveBegin& e) {
  if (!unseen.defined()) return;
  state.is_half_done = !is_first;
  const auto seen = sum_of_all(e);
  state.pending.assign(seen.data_ptr<double>(),
                       seen.data_ptr<double>() + count + (state.is_half_done ? 1 : 0));
}

void LossSpikeCallback::on(const TrainEnd&) {
  good_weights.clear();
  good_state.clear();
}

bool LossSpikeCallback::is_spike(double loss) const {
  if (!std::isfinite(loss)) return true;
  if (std::ssize(state.losses) < min_losses) return false;
  const double middle = detail::median(state.losses);
  auto distances = state.losses;
  for (auto& distance : distances) distance = std::abs(distance - middle);
  const double deviation = std::max(1.4826 * detail::median(std::move(distances)), 0.01 * std::abs(middle));
  return loss > middle + threshold * deviation;
}

torch::Tensor LossSpikeCallback::sum_of_all(const Context& e) const {
  auto losses_of_all = unseen.cpu();
  if (losses_of_all.is_same(unseen)) losses_of_all = losses_of_all.clone();
  e.trainer.communicator().sum(losses_of_all);
  return losses_of_all;
}

void LossSpikeCallback::look(const Context& e) {
  if (!unseen.defined())
    throw Error("LossSpikeCallback received no loss: training_step must raise BackwardEnd, as Etude's does");
  const auto seen = sum_of_all(e);  // All processes must make the same decision.
  const auto number = std::exchange(count, 0);
  const auto first_step = e.state.global_step - static_cast<std::int64_t>(number) + 1;
  std::optional<double> spike;
  for (std::size_t i = 0; i < number && !(spike && action != LossSpikeAction::warn); ++i) {
    const double loss = seen.data_ptr<double>()[i];
    if (is_spike(loss)) {
      state.spikes.push_back(first_step + static_cast<std::int64_t>(i));
      spike = loss;
      if (action != LossSpikeAction::warn || !std::isfinite(loss)) continue;
    }
    // A finite spike that is only reported also enters the window, so if the loss stays that high, the median
    // reaches it and the reports end.
    state.losses.push_back(loss);
    if (std::ssize(state.losses) > window) state.losses.erase(state.losses.begin());
  }
  if (spike) return answer(e, *spike);
  state.rollbacks_in_a_row = 0;
  keep(e);
}

void LossSpikeCallback::answer(const Context& e, double loss) {
  e.log("loss_spikes", static_cast<double>(state.spikes.size()));
  const auto what = fmt::format(
      "the loss of step {} is {:.4g}, a spike{}", state.spikes.back(), detail::without_sign_of_nan(loss),
      state.losses.empty() ? "" : fmt::format(" above {:.4g}", detail::median(state.losses)));
  if (action == LossSpikeAction::warn) {
    message(e.args, LogLevel::warning, "{}", what);
    return;
  }
  if (action == LossSpikeAction::stop) {
    e.control.request_stop(what);
    return;
  }
  roll_back(e);
  state.undone.push_back({good_step + 1, e.state.global_step});
  message(e.args, LogLevel::warning, "{}: the model is back at step {}", what, good_step);
  good_step = e.state.global_step;
  detail::count_up(state.rollbacks_in_a_row);
  if (state.rollbacks_in_a_row > max_rollbacks)
    e.control.request_stop(fmt::format("{}, after {} roll-backs in a row", what, max_rollbacks));
}

void LossSpikeCallback::keep(const Context& e) {
  if (action != LossSpikeAction::roll_back) return;
  const torch::NoGradGuard no_grad;
  std::vector<NamedTensor> weights;
  for (auto& tensor : e.model.named_parameters()) weights.push_back(std::move(tensor));
  for (auto& tensor : e.model.named_buffers()) weights.push_back(std::move(tensor));
  detail::copy_named(weights, good_weights);
  detail::copy_named(gather_state(*e.optimizer, e.trainer.communicator(), /*everywhere=*/true), good_state);
  good_step = e.state.global_step;
}

void LossSpikeCallback::roll_back(const Context& e) const {
  const torch::NoGradGuard no_grad;
  const std::unordered_map<std::string, torch::Tensor> good(good_weights.begin(), good_weights.end());
  for (auto& tensors : {e.model.named_parameters(), e.model.named_buffers()})
    for (const auto& [name, tensor] : tensors)
      if (const auto found = good.find(name); found != good.end()) torch::Tensor(tensor).copy_(found->second);
  e.optimizer->load_state(good_state);
}

}  // namespace etude::inline v0
