#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/data/batch.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// The accumulation group under way: the micro-batches of one update of the weights.
class AccumulationGroup {
 public:
  /// Buffers of the model, each with a copy.
  using Buffers = std::vector<std::pair<torch::Tensor, torch::Tensor>>;

  /// Begins a group of `size` micro-batches, of which nothing is counted yet. The losses remain.
  void begin(std::int64_t size);
  /// The number of its micro-batches.
  std::int64_t size() const { return size_; }

  /// The group's input tokens that count as seen, and its floating-point operations.
  void add_tokens(std::int64_t tokens) { tokens_ += tokens; }
  std::int64_t tokens() const { return tokens_; }
  void add_floating_point_ops(double ops) { floating_point_ops_ += ops; }
  double floating_point_ops() const { return floating_point_ops_; }

  /// The number of items that `compute_loss` is given, if the loss counts any: the group's, or during an
  /// evaluation its batch's.
  void add_items(double items) { num_items_ = num_items_.value_or(0) + items; }
  void set_tokens(std::int64_t tokens) { tokens_ = tokens; }
  void set_floating_point_ops(double ops) { floating_point_ops_ = ops; }
  void set_num_items(std::optional<double> items) { num_items_ = items; }
  std::optional<double> num_items() const { return num_items_; }

  /// The losses of the micro-batches, or of their parts, that are done.
  void add_loss(torch::Tensor loss) { losses_.push_back(std::move(loss)); }
  void forget_losses() { losses_.clear(); }
  const std::vector<torch::Tensor>& losses() const { return losses_; }
  /// Their sum; undefined without any.
  torch::Tensor loss() const;

  /// Passes a micro-batch to `run` in parts of at most `part_size` examples.
  template <class Run>
  void in_parts(const Batch& batch, std::int64_t part_size, Run run) {
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

  /// The fraction of each micro-batch's examples that this process has, if there are several.
  void set_batch_share(double share) { batch_share_ = share; }
  /// Whether the micro-batch under way only keeps this process in step with the others.
  bool is_padding() const { return batch_share_ == 0; }

  /// The fraction of the group's mean loss, over all processes, that a micro-batch, or the part of it under
  /// way, contributes.
  double share() const { return batch_share_ * part_share_ / static_cast<double>(size_); }
  /// `loss` times `share`.
  torch::Tensor share_of(torch::Tensor loss) const;

  /// Copies what forward passes change: the model's buffers and the states of the generators.
  void remember_begin(const Model& model, const StatefulGenerators& generators);
  /// Restores what `remember_begin` copied, and forgets the losses.
  void return_to_begin(const StatefulGenerators& generators);
  const RandomState& random_state_at_begin() const { return random_state_; }
  const Buffers& buffers_at_begin() const { return buffers_; }

  /// The state that the model carried when the group began; unset while no group is under way.
  void set_carried_at_begin(std::optional<CarriedTensors> carried) { carried_ = std::move(carried); }
  const std::optional<CarriedTensors>& carried_at_begin() const { return carried_; }

 private:
  std::int64_t size_ = 1;
  std::int64_t tokens_ = 0;
  double floating_point_ops_ = 0;
  std::optional<double> num_items_;
  std::vector<torch::Tensor> losses_;
  double batch_share_ = 1;
  double part_share_ = 1;
  RandomState random_state_;
  Buffers buffers_;
  std::optional<CarriedTensors> carried_;
};

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/loop/impl/accumulation_group.ipp"
#endif
