#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "etude/data/batch.hpp"
#include "etude/model/loss_divisor.hpp"

namespace etude::inline v0 {

/// The accumulation group under way: the micro-batches of one update of the weights.
class AccumulationGroup {
 public:
  /// Begins a group of `size` micro-batches, with nothing counted yet. The losses are kept.
  void begin(std::int64_t size);
  /// The number of its micro-batches.
  std::int64_t size() const { return size_; }
  /// Sets that number, once it is known how many the other processes have.
  void set_size(std::int64_t size) { size_ = size; }

  std::int64_t tokens = 0;        ///< the group's input tokens that count as seen
  double floating_point_ops = 0;  ///< of its micro-batches

  /// Add to or set the number of items that `compute_loss` gets, if the loss counts items.
  void add_items(double items) { num_items_ = num_items_.value_or(0) + items; }
  void set_num_items(std::optional<double> items) { num_items_ = items; }
  std::optional<double> num_items() const;

  /// Set how the micro-batches' losses add up and, if they are weighted by divisors, the group's divisor.
  void set_reduction(LossReduction reduction) { reduction_ = reduction; }
  void set_divisor(std::optional<LossDivisor> divisor) { divisor_ = std::move(divisor); }
  const std::optional<LossDivisor>& divisor() const;

  /// `arrive` sets the values that depend on the other processes; it is called before their first use.
  void settle_by(std::function<void()> arrive) { arrive_ = std::move(arrive); }
  void settle() const {
    if (const auto arrive = std::exchange(arrive_, nullptr)) arrive();
  }

  /// Adds the loss of a finished micro-batch, or of a finished part of one.
  void add_loss(torch::Tensor loss) { losses_.push_back(std::move(loss)); }
  /// Forgets the losses, and a part that an exception has left unfinished.
  void forget_losses() {
    losses_.clear();
    part_share_ = 1;
  }
  const std::vector<torch::Tensor>& losses() const { return losses_; }
  /// Returns the sum of the losses; undefined if there are none.
  torch::Tensor loss() const;

  /// Passes a micro-batch to `run` in parts of at most `part_size` examples.
  template <class Run>
  void in_parts(const Batch& batch, std::int64_t part_size, Run run) {
    part_share_ = 1;  // an exception may have left a part's share
    if (batch.size > 0 && part_size >= batch.size) {
      auto whole = batch;
      return run(whole);
    }
    for (std::int64_t first = 0; first < batch.size; first += part_size) {
      auto part = batch.slice(first, std::min(first + part_size, batch.size));
      part_share_ = static_cast<double>(part.size) / static_cast<double>(batch.size);
      run(part);
    }
    part_share_ = 1;
  }

  /// Begins a micro-batch. `share`: the fraction of its examples that this process has, if there are several
  /// processes; `divisor`: the divisor of its loss, if known.
  void set_batch(double share, std::optional<LossDivisor> divisor = {});
  /// Sets the divisor of the part under way, if `in_parts` makes several.
  void set_part_divisor(std::optional<LossDivisor> divisor) { part_divisor_ = std::move(divisor); }
  /// Whether the micro-batch under way only keeps this process in step with the others.
  bool is_padding() const { return batch_share_ == 0; }
  /// Whether the micro-batch or part under way is known to add nothing to the loss, since it is padding or
  /// has no items.
  bool adds_nothing() const { return is_padding() || (part_divisor_ && part_divisor_->number() == 0.0); }

  /// The fraction of the group's examples, over all processes, that is in the current micro-batch or part.
  /// Assumes that all micro-batches are equally large.
  double share_of_examples() const { return batch_share_ * part_share_ / static_cast<double>(size_); }
  /// The factor by which the loss of the current micro-batch or part is added to the group's loss: 1 if
  /// losses are sums, its fraction of the group's divisor if that is known, and otherwise
  /// `share_of_examples`. Unset if a divisor is on a device.
  std::optional<double> share() const;
  /// Returns `loss` times `share()`, or 0 if `loss` is a mean over nothing. `outputs` are the outputs that
  /// the loss depends on.
  torch::Tensor share_of(torch::Tensor loss, const Tensors& outputs = {}) const;
  /// Whether the losses add up as they are.
  bool adds_up() const { return reduction_ == LossReduction::sum; }

 private:
  std::int64_t size_ = 1;
  std::optional<double> num_items_;
  LossReduction reduction_ = LossReduction::unknown;
  std::optional<LossDivisor> divisor_;
  std::optional<LossDivisor> part_divisor_;
  mutable std::function<void()> arrive_;
  std::vector<torch::Tensor> losses_;
  double batch_share_ = 1;
  double part_share_ = 1;
};

}  // namespace etude::inline v0
