#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "etude/optim/clipping.hpp"
#include "etude/optim/flat_optimizer.hpp"

namespace etude::inline v0 {

ETUDE_INLINE torch::Tensor FlatOptimizer::clip_grad_norm_in_step(double max_norm) {
  if (!uses_kernels()) return clip_grad_norm(max_norm);
  const torch::Tensor norm = grad_norm();
  gradient_scale_ = clip_factor(norm, max_norm);
  return norm;
}

ETUDE_INLINE void FlatOptimizer::zero_grad() { flat_.zero_grad(/*apart=*/uses_kernels()); }

ETUDE_INLINE FlatOptimizer::FlatOptimizer(const std::vector<ParameterGroup>& groups, double lr,
                                          double weight_decay, std::vector<Moment> moments)
    : Optimizer(groups, lr, weight_decay), moments_(std::move(moments)) {
  adopt_layout();
}

ETUDE_INLINE bool FlatOptimizer::in_one_pass() const { return false; }

ETUDE_INLINE bool FlatOptimizer::has_libtorch_kernel(const torch::Tensor& /*values*/) const { return false; }

ETUDE_INLINE void FlatOptimizer::update_by_libtorch(const Lists&, const ParamGroup&, std::int64_t /*steps*/) {
}

ETUDE_INLINE torch::Tensor FlatOptimizer::scaled(const torch::Tensor& gradients) const {
  return gradient_scale_ == 1 ? gradients : gradients.mul(gradient_scale_);
}

ETUDE_INLINE void FlatOptimizer::update() {
  const std::vector<FlatRange>& ranges = flat_.begin_step();
  if (layout_ != flat_.layout()) adopt_layout();
  const bool apart = flat_.are_gradients_apart();
  if (generation_ != flat_.generation() || apart != pieces_are_apart_) cut(ranges, apart);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    clear(lists_);
    const ParamGroup& group = groups_[ranges[i].group];
    for (auto& [piece, slot] : pieces_[i]) {
      if (apart) piece.gradients = flat_.parameter(slot).grad();
      if (has_libtorch_kernel(piece.values))
        enlist(piece, ranges[i].steps);
      else
        update_range(piece, group, ranges[i].steps);
      if (apart) piece.gradients.reset();
    }
    if (!lists_.values.empty()) update_by_libtorch(lists_, group, ranges[i].steps);
  }
  clear(lists_);
  gradient_scale_ = 1;
}

ETUDE_INLINE NamedTensors FlatOptimizer::moments(std::size_t slot) {
  if (layout_ != flat_.layout()) adopt_layout();
  NamedTensors result;
  const FlatSlot& place = layout_->slots[slot];
  for (std::size_t m = 0; m < moments_.size(); ++m) {
    result.emplace_back(moments_[m].name, place.view(buffers_[m][place.buffer]));
  }
  return result;
}

ETUDE_INLINE void FlatOptimizer::reset_moments(std::size_t slot) {
  const NamedTensors views = moments(slot);
  for (std::size_t m = 0; m < moments_.size(); ++m) views[m].second.fill_(moments_[m].initial);
}

ETUDE_INLINE bool FlatOptimizer::uses_kernels() const {
  const auto is_plain = [](const torch::Tensor& values) {
    return values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble);
  };
  return in_one_pass() && std::ranges::all_of(flat_.values(), is_plain);
}

ETUDE_INLINE void FlatOptimizer::clear(Lists& lists) {
  for (auto* list : {&lists.values, &lists.gradients, &lists.steps}) list->clear();
  for (auto& list : lists.moments) list.clear();
}

ETUDE_INLINE void FlatOptimizer::enlist(const Range& range, std::int64_t steps) {
  if (lists_.steps.empty())
    lists_.steps.push_back(
        at::full({}, static_cast<double>(steps), range.values.options().dtype(at::kFloat)));
  else
    lists_.steps.push_back(lists_.steps.front());
  lists_.values.push_back(range.values);
  lists_.gradients.push_back(range.gradients);
  lists_.moments.resize(range.moments.size());
  for (std::size_t m = 0; m < range.moments.size(); ++m) lists_.moments[m].push_back(range.moments[m]);
}

ETUDE_INLINE void FlatOptimizer::adopt_layout() {
  const torch::NoGradGuard no_grad;
  const std::shared_ptr<const FlatLayout> before = std::exchange(layout_, flat_.layout());
  for (std::size_t m = 0; m < moments_.size(); ++m) {
    std::vector<torch::Tensor> buffers = layout_->allocate(moments_[m].initial);
    for (const FlatSlot& slot : layout_->slots) {
      const FlatSlot* old = before ? before->find(slot.name) : nullptr;
      if (old) slot.view(buffers[slot.buffer]).copy_(old->view(buffers_[m][old->buffer]));
    }
    if (before) {
      buffers_[m] = std::move(buffers);
    } else {
      buffers_.push_back(std::move(buffers));
    }
  }
}

ETUDE_INLINE void FlatOptimizer::cut(const std::vector<FlatRange>& ranges, bool apart) {
  generation_ = flat_.generation();
  pieces_are_apart_ = apart;
  pieces_.clear();
  for (const FlatRange& range : ranges) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    if (apart)
      cut_by_parameters(range, pieces);
    else
      cut_by_length(range, pieces);
  }
}

ETUDE_INLINE void FlatOptimizer::cut_by_parameters(const FlatRange& range, std::vector<Piece>& pieces) {
  for (std::size_t i = range.first; i < range.last; ++i) {
    const FlatSlot& slot = layout_->slots[i];
    if (slot.size == 0) continue;
    Range piece{slot.view(flat_.values()[slot.buffer]), {}, {}};
    for (const auto& buffers : buffers_) piece.moments.push_back(slot.view(buffers[slot.buffer]));
    pieces.push_back({std::move(piece), i});
  }
}

ETUDE_INLINE void FlatOptimizer::cut_by_length(const FlatRange& range, std::vector<Piece>& pieces) {
  const torch::Tensor& values = flat_.values()[range.buffer];
  const std::int64_t length = values.is_cpu() && !in_one_pass() ? piece_length() : range.size;
  for (std::int64_t begin = 0; begin < range.size; begin += length) {
    const auto piece_of = [&](const torch::Tensor& buffer) {
      return buffer.narrow(0, range.offset + begin, std::min(length, range.size - begin));
    };
    Range piece{piece_of(values), piece_of(flat_.gradients()[range.buffer]), {}};
    for (const auto& buffers : buffers_) piece.moments.push_back(piece_of(buffers[range.buffer]));
    pieces.push_back({std::move(piece)});
  }
}

ETUDE_INLINE std::int64_t FlatOptimizer::piece_length() { return 32768 * std::max(1, at::get_num_threads()); }

}  // namespace etude::inline v0
