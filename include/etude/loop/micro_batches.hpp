#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/base/interrupt.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/fetching.hpp"

namespace etude::inline v0 {

/// The micro-batches of the update under way, as they come from a loader and its handlers.
template <class Events>
class MicroBatches {
 public:
  explicit MicroBatches(Events& events) : events_(events), core_(events.core()) {}

  std::size_t size() const { return batches_.size(); }
  bool empty() const { return batches_.empty(); }
  Batch& operator[](std::size_t i) { return batches_[i]; }
  auto begin() { return batches_.begin(); }
  auto end() { return batches_.end(); }
  const std::vector<Batch>& all() const { return batches_; }
  void clear() { batches_.clear(); }

  /// How much of the examples of a micro-batch, in those of all processes, this process has.
  double share(std::size_t i) const { return shares_[i]; }

  /// The examples of the largest.
  std::int64_t largest() const {
    std::int64_t largest = 0;
    for (const auto& batch : batches_) largest = std::max(largest, batch.size);
    return largest;
  }

  /// Fetches those of the next update and returns their number, which is smaller than requested at the end of
  /// an epoch.
  template <class Stream>
  std::int64_t fetch(Stream& stream) {
    const PhaseClock::Slice slice(core_.phase_clock, to_string(TimedPhase::data));
    batches_.clear();
    shares_.clear();
    core_.group.begin(1);
    events_.raise(BatchFetchBegin{core_.context()});
    while (static_cast<std::int64_t>(batches_.size()) < core_.accumulation.steps()) {
      const InterruptionScope waiting(!core_.ranks.several());
      auto batch = fetched(
          core_.args, [&] { return stream.next(); },
          [&] {
            return fmt::format("train_dataset, for the batch of step {}", core_.state.global_step + 1);
          });
      if (!batch) break;
      batches_.push_back(std::move(*batch));
      shares_.push_back(share_of(stream));
    }
    if (batches_.empty()) return 0;
    core_.group.begin(static_cast<std::int64_t>(batches_.size()));
    // Counted before the labels go to a device, so that nothing waits for it, unless a handler may change
    // them.
    constexpr bool may_change = Events::template is_written<BatchFetched>();
    if (!may_change) core_.count(batches_, shares_);
    for (auto& batch : batches_) {
      batch = batch.to(core_.device, core_.args.dataloader_pin_memory);
      batch = events_.raise(BatchFetched{core_.context(), std::move(batch)}).batch;
    }
    if (may_change) core_.count(batches_, shares_);
    for (const auto& batch : batches_)
      core_.group.add_floating_point_ops(events_.trainer().floating_point_ops(batch));
    return core_.group.size();
  }

  /// Replaces the group's number of items by that of all processes.
  void share_items() {
    if (!core_.may_count_items()) return;
    auto& group = core_.group;
    if (!core_.args.average_tokens_across_devices) {
      // At least one, for a process whose labels are all padding.
      const double own = std::max(group.num_items().value_or(0), 1.0);
      group.set_num_items(own * static_cast<double>(core_.ranks.world_size()));
      return;
    }
    const double all = core_.ranks.sum(group.num_items().value_or(0));
    if (group.num_items() || all > 0) group.set_num_items(all);
  }

 private:
  /// A loader that isn't divided among the processes counts as much as each other's.
  template <class Stream>
  double share_of(const Stream& stream) const {
    const auto world_size = core_.ranks.world_size();
    const auto* loader = core_.train_dataloader.get();
    const bool is_part = world_size == 1 || (loader && loader->options().part.world_size == world_size);
    return is_part ? stream.share() : 1 / static_cast<double>(world_size);
  }

  Events& events_;
  TrainerCore& core_;
  std::vector<Batch> batches_;
  std::vector<double> shares_;
};

}  // namespace etude::inline v0
