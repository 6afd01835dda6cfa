#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/fetching.hpp"
#include "etude/metrics/metrics.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/trainer_control.hpp"

namespace etude::inline v0 {

/// One update of the weights: fetches an accumulation group of micro-batches, accumulates and clips its
/// gradients, and steps the optimizer and the schedule.
template <class Events>
class Update {
 public:
  explicit Update(Events& events) : events_(events), core_(events.core()) {}

  /// Fetches the micro-batches of the next update and returns their number, which is smaller than requested
  /// at the end of an epoch.
  template <class Batches>
  std::int64_t fetch(Batches& batches) {
    group_.clear();
    events_.raise(BatchFetchBegin{core_.context()});
    while (static_cast<std::int64_t>(group_.size()) < core_.accumulation.steps()) {
      const InterruptionScope waiting(true);
      auto batch = fetched(
          core_.args, [&] { return batches.next(); },
          [&] {
            return fmt::format("train_dataset, for the batch of step {}", core_.state.global_step + 1);
          });
      if (!batch) break;
      group_.push_back(std::move(*batch));
    }
    core_.group.begin(static_cast<std::int64_t>(group_.size()));
    // Counted before the labels go to a device, so that nothing waits for it, unless a handler may change
    // them.
    constexpr bool may_change = Events::template is_written<BatchFetched>();
    if (!may_change) core_.count(group_);
    for (auto& batch : group_) {
      batch = batch.to(core_.device, core_.args.dataloader_pin_memory);
      batch = events_.raise(BatchFetched{core_.context(), std::move(batch)}).batch;
    }
    if (may_change) core_.count(group_);
    for (const auto& batch : group_)
      core_.group.add_floating_point_ops(events_.trainer().floating_point_ops(batch));
    return core_.group.size();
  }

  /// Accumulates the group's gradients; false if it was given up. `resume()` restores those of a half-done
  /// group, and returns whether it did.
  template <class Resume>
  bool add_gradients(Resume resume) {
    events_.raise(StepBegin{core_.context()});
    if (!resume()) core_.group.forget_losses();
    if (!core_.args.auto_microbatching) return run_micro_batches();
    for (;;) {
      AttemptLogs logs(core_);
      try {
        return run_micro_batches();
      } catch (...) {
        if (!core_.part_size.shrink(std::current_exception(), largest_batch())) throw;
      }  // The exception and whatever it holds are released only after its handler.
      logs.drop();
      core_.group.return_to_begin(core_.options.generators);
      core_.progress.position.micro_batches = 0;
      core_.optimizers.zero_grad();
      events_.raise(StepRestarted{core_.context()});
    }
  }

  /// Applies one update with the accumulated gradients; afterwards the training is at `next`.
  void step(const DataPosition& next, double epoch) {
    auto& optimizer = *core_.optimizers.main();
    auto& lr_scheduler = *core_.optimizers.main_scheduler();
    events_.raise(GradientsComplete{core_.context()});
    if (core_.args.max_grad_value > 0) {
      core_.log_window.set_grad_norm(optimizer.grad_norm());
      optimizer.clip_grad_value(core_.args.max_grad_value);
      if (core_.args.max_grad_norm > 0) optimizer.clip_grad_norm(core_.args.max_grad_norm);
    } else if (core_.args.max_grad_norm > 0) {
      core_.log_window.set_grad_norm(gradients_are_seen
                                         ? optimizer.clip_grad_norm(core_.args.max_grad_norm)
                                         : optimizer.clip_grad_norm_in_step(core_.args.max_grad_norm));
    } else {
      core_.log_window.set_grad_norm(optimizer.grad_norm());
    }
    events_.raise(GradientsClipped{core_.context(), core_.log_window.grad_norm()});
    events_.raise(PreOptimizerStep{core_.context()});
    core_.log_window.set_learning_rate(lr_scheduler.get_last_lr());
    check_learning_rates();
    core_.updating = true;
    optimizer.step(optimizer.needs_closure() ? reevaluation() : nullptr);
    stop_later(core_.control, [&] { events_.raise(OptimizerStep{core_.context()}); });
    lr_scheduler.step();
    stop_later(core_.control, [&] {
      events_.raise(SchedulerStep{core_.context(), lr_scheduler.get_last_lr()});
    });
    optimizer.zero_grad();
    for (const auto& loss : core_.group.losses())
      core_.log_window.add_loss(loss, core_.state.global_step + 1);
    core_.group.forget_losses();
    group_.clear();
    ++core_.state.global_step;
    core_.state.epoch = epoch;
    core_.state.num_input_tokens_seen += core_.group.tokens();
    core_.state.total_flos += core_.group.floating_point_ops();
    core_.progress.position = next;
    core_.updating = false;
  }

 private:
  /// Holds back what callbacks log during an attempt, until it is known whether the attempt counts.
  struct AttemptLogs {
    explicit AttemptLogs(TrainerCore& core_) : core(core_), before(std::exchange(core.pending_logs, {})) {}
    AttemptLogs(const AttemptLogs&) = delete;
    AttemptLogs& operator=(const AttemptLogs&) = delete;
    ~AttemptLogs() {
      before.merge(std::exchange(core.pending_logs, {}));
      core.pending_logs = std::move(before);
    }
    void drop() { core.pending_logs = {}; }

    TrainerCore& core;
    PendingLogs before;
  };

  /// Whether a handler may look at the gradients between clipping and the next `zero_grad`.
  static constexpr bool gradients_are_seen =
      Events::template is_heard<GradientsClipped>() || Events::template is_heard<PreOptimizerStep>() ||
      Events::template is_heard<OptimizerStep>() || Events::template is_heard<SchedulerStep>();

  /// An invalid rate would ruin all weights, and a checkpoint that holds it can't be resumed.
  void check_learning_rates() const {
    const auto& groups = core_.optimizers.main()->param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const double rate = groups[i].lr;
      if (rate >= 0 && rate <= std::numeric_limits<double>::max()) continue;
      throw ArgumentError(
          fmt::format("the learning rate of parameter group {} is {} for step {}: must be at least 0 and "
                      "finite; the lr_scheduler gives it, or a callback has set it",
                      i, detail::without_sign_of_nan(rate), core_.state.global_step + 1));
    }
  }

  /// Runs the group's remaining micro-batches; false if it was given up.
  bool run_micro_batches() {
    auto& position = core_.progress.position;
    for (auto i = static_cast<std::size_t>(position.micro_batches); i < group_.size(); ++i) {
      run_micro_batch(group_[i]);
      if (i + 1 == group_.size()) break;
      events_.raise(SubstepEnd{core_.context()});
      if (core_.stopping()) {
        position.micro_batches = 0;
        core_.optimizers.zero_grad();
        return false;
      }
      position.micro_batches = static_cast<std::int64_t>(i + 1);
      throw_if_interrupted();
    }
    return true;
  }

  void run_micro_batch(Batch& batch) {
    if (!core_.args.auto_microbatching) return run_part(batch);
    // In parts, even if only one, so that the batch stays intact for another attempt.
    core_.group.in_parts(batch, core_.part_size.of(batch.size), [&](Batch& part) { run_part(part); });
  }

  void run_part(Batch& batch) {
    batch = events_.raise(ForwardBegin{core_.context(), std::move(batch)}).batch;
    core_.group.add_loss(with_place(
        [&] { return core_.loss_check.after_step(events_.trainer().training_step(batch)); },
        [&] { return place_of(core_.model, fmt::format("step {}", core_.state.global_step + 1), batch); }));
  }

  std::int64_t largest_batch() const {
    std::int64_t largest = 0;
    for (const auto& batch : group_) largest = std::max(largest, batch.size);
    return largest;
  }

  /// For optimizers that evaluate the loss repeatedly: the first evaluation is the one just done.
  Optimizer::Closure reevaluation() {
    return [this, first = true]() mutable {
      if (std::exchange(first, false)) return sum(core_.group.losses());
      core_.optimizers.zero_grad();
      std::vector<torch::Tensor> losses;
      for (auto& batch : group_)
        losses.push_back(core_.loss_check.after_step(events_.trainer().training_step(batch)));
      return sum(losses);
    };
  }

  static torch::Tensor sum(const std::vector<torch::Tensor>& losses) {
    auto total = losses.front();
    for (std::size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
    return total;
  }

  Events& events_;
  TrainerCore& core_;
  std::vector<Batch> group_;  // the micro-batches of the current update
};

}  // namespace etude::inline v0
