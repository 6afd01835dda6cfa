#include "etude/callbacks/epoch_loss.hpp"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/events.hpp"
#include "etude/metrics/running_mean.hpp"

namespace etude::inline v0 {

void EpochLoss::begin(bool from_scratch) {
  if (from_scratch) forget();
}

void EpochLoss::on(const StepBegin&) {
  if (!std::exchange(is_resumed_, false)) group_.clear();
  micro_batches_ = group_.size();
}

void EpochLoss::on(const BackwardEnd& e) {
  if (e.share == 0.0) return;  // It only keeps this process in step with the others.
  if (group_.size() < micro_batches_) group_.push_back({e.loss, e.share.value_or(0), e.batch.size});
}

void EpochLoss::on(const StepRestarted&) {
  group_.clear();
  micro_batches_ = 0;
}

void EpochLoss::on(const StepEnd& e) {
  std::int64_t examples = 0;
  for (const auto& part : group_) examples += part.examples;
  // If the losses add up to a mean over items, each is weighted by all examples of the group, over all
  // processes, which have equally many.
  const auto all = static_cast<double>(examples * e.args.world_size());
  for (const auto& [loss, share, size] : group_)
    losses_.add(loss, share > 0 ? static_cast<double>(size) / share : all);
  examples_ += examples;
  group_.clear();
}

std::optional<double> EpochLoss::take(Communicator& communicator) {
  const auto sums = torch::tensor({losses_.state().sum, static_cast<double>(examples_)}, torch::kDouble);
  communicator.sum(sums);
  std::optional<double> mean;
  if (const auto examples = sums[1].item<double>(); examples > 0) mean = sums[0].item<double>() / examples;
  forget();
  return mean;
}

EpochLossState EpochLoss::state() {
  EpochLossState state{losses_.state(), examples_, {}, {}, {}};
  for (const auto& [loss, share, size] : group_) {
    state.group_losses.push_back(loss.item<double>());
    state.group_shares.push_back(share);
    state.group_examples.push_back(size);
  }
  return state;
}

void EpochLoss::load_state(const EpochLossState& state) {
  losses_.load_state(state.losses);
  const auto count = [](std::int64_t n) { return std::clamp<std::int64_t>(n, 0, detail::most_steps); };
  examples_ = count(state.examples);
  group_.clear();
  const auto micro_batches =
      std::min({state.group_losses.size(), state.group_shares.size(), state.group_examples.size()});
  for (std::size_t i = 0; i < micro_batches; ++i)
    group_.push_back({at::scalar_tensor(state.group_losses[i], at::kDouble), state.group_shares[i],
                      count(state.group_examples[i])});
  is_resumed_ = true;
}

void EpochLoss::forget() {
  losses_.reset();
  examples_ = 0;
  group_.clear();
  is_resumed_ = false;
}

}  // namespace etude::inline v0
