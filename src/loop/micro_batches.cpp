#include "micro_batches.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "etude/base/interrupt.hpp"
#include "etude/loop/fetching.hpp"

namespace etude::inline v0 {

void MicroBatches::enter(std::size_t i) {
  core_.group.set_batch(shares_[i], divisors_.empty() ? std::nullopt : divisors_[i]);
}

std::int64_t MicroBatches::largest() const {
  std::int64_t largest = 0;
  for (const auto& batch : batches_) largest = std::max(largest, batch.size);
  return largest;
}

std::int64_t MicroBatches::fetch(BatchSource& source) {
  const ActivityClock::Slice slice(core_.activity_clock, to_string(TimedActivity::data));
  batches_.clear();
  shares_.clear();
  divisors_.clear();
  core_.group.begin(1);
  events_.raise<BatchFetchBegin>();
  while (static_cast<std::int64_t>(batches_.size()) < core_.accumulation.steps()) {
    const InterruptionScope waiting(core_.may_interrupt_groups());
    auto batch = fetched(
        core_.args, [&] { return source.next(); },
        [&] { return fmt::format("train_dataset, for the batch of step {}", core_.state.global_step + 1); });
    if (!batch) break;
    batches_.push_back(std::move(*batch));
    shares_.push_back(source.share());
  }
  if (core_.brings_own_batches() && !batches_.empty()) spare_ = batches_.back();
  if (batches_.empty()) return 0;
  core_.group.begin(static_cast<std::int64_t>(batches_.size()));
  // Counts labels before they go to a device, to avoid waiting for it, unless a handler may change them.
  const bool may_change = events_.is_written<BatchFetched>();
  if (!may_change) divisors_ = core_.count(batches_, shares_);
  for (auto& batch : batches_) receive(batch);
  if (may_change) divisors_ = core_.count(batches_, shares_);
  for (const auto& batch : batches_)
    core_.group.floating_point_ops += events_.trainer().floating_point_ops(batch);
  return core_.group.size();
}

std::int64_t MicroBatches::join_others() {
  std::vector<double> examples(static_cast<std::size_t>(core_.accumulation.steps()));
  for (std::size_t i = 0; i < batches_.size(); ++i) examples[i] = static_cast<double>(batches_[i].size);
  const auto of_all = core_.ranks.sum(examples);
  const auto count = static_cast<std::size_t>(std::ranges::count_if(of_all, [](double n) { return n > 0; }));
  for (std::size_t i = 0; i < batches_.size(); ++i) shares_[i] = examples[i] / of_all[i];
  if (!spare_) return std::ssize(batches_);
  const bool has_none = batches_.empty();
  while (batches_.size() < count) {
    batches_.push_back(*spare_);
    shares_.push_back(0);
    if (!divisors_.empty()) divisors_.emplace_back(LossDivisor(0));
    receive(batches_.back());
  }
  if (has_none) divisors_ = core_.count(batches_, shares_);
  if (count > 0) core_.group.set_size(static_cast<std::int64_t>(count));
  return std::ssize(batches_);
}

void MicroBatches::share_divisors() {
  const bool is_mean = core_.loss_reduction() == LossReduction::mean;
  if (!core_.may_count_items() && !is_mean) return;
  auto& group = core_.group;
  const auto items = group.num_items();
  const auto divisor = group.divisor();
  const double own_items = items.value_or(0), own_divisor = divisor ? divisor->read() : 0;
  if (!core_.args.average_tokens_across_devices) {
    // At least 1, even for a process whose labels are all padding.
    const auto each = [&](double own) {
      return (own > 0 ? own : 1) * static_cast<double>(core_.ranks.world_size());
    };
    group.set_num_items(each(own_items));
    if (divisor) group.set_divisor(LossDivisor(each(own_divisor)));
    return;
  }
  const auto sums = torch::tensor({own_items, own_divisor}, torch::kDouble);
  group.settle_by([&group, sums, has_items = items.has_value(), has_divisor = divisor.has_value(),
                   arrive = core_.ranks.communicator().begin_sum(sums)] {
    arrive();
    const auto* all = sums.data_ptr<double>();
    if (has_items || all[0] > 0) group.set_num_items(all[0]);
    if (has_divisor) group.set_divisor(LossDivisor(all[1]));
  });
}

void MicroBatches::receive(Batch& batch) {
  batch = batch.to(core_.device, core_.args.dataloader_pin_memory);
  if (auto event = events_.raise<BatchFetched>(std::move(batch))) batch = std::move(event->batch);
}

}  // namespace etude::inline v0
