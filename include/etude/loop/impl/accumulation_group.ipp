#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>

#include "etude/base/linkage.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/loop/accumulation_group.hpp"

namespace etude::inline v0 {

ETUDE_INLINE void AccumulationGroup::begin(std::int64_t size) {
  size_ = size;
  tokens_ = 0;
  floating_point_ops_ = 0;
  num_items_.reset();
}

ETUDE_INLINE torch::Tensor AccumulationGroup::loss() const {
  if (losses_.empty()) return {};
  auto sum = losses_.front();
  for (std::size_t i = 1; i < losses_.size(); ++i) sum = sum + losses_[i];
  return sum;
}

ETUDE_INLINE torch::Tensor AccumulationGroup::share_of(torch::Tensor loss) const {
  if (size_ > 1) loss = loss / size_;
  if (const double part = batch_share_ * part_share_; part < 1) loss = loss * part;
  return loss;
}

ETUDE_INLINE void AccumulationGroup::remember_begin(const Model& model,
                                                    const StatefulGenerators& generators) {
  random_state_ = random_state(generators);
  buffers_.clear();
  for (const auto& [name, buffer] : model.named_buffers())
    buffers_.emplace_back(buffer, buffer.detach().clone());
}

ETUDE_INLINE void AccumulationGroup::return_to_begin(const StatefulGenerators& generators) {
  load_random_state(random_state_, generators);
  const torch::NoGradGuard no_grad;
  for (const auto& [buffer, copy] : buffers_) torch::Tensor(buffer).copy_(copy);
  part_share_ = 1;
  losses_.clear();
}

}  // namespace etude::inline v0
