#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/optim/clipping.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude {

/// The base of optimizers that treat every element alike: the state lies flat beside the parameters, and an
/// update is a few operations on long vectors. To write one of your own, name its moments and override
/// `update_range`.
class FlatOptimizer : public Optimizer {
 protected:
  /// A value that is kept for every element, and what it is before the first step.
  struct Moment {
    std::string name;
    double initial = 0;
  };

  /// Neighbouring elements: one-dimensional views of equal length.
  struct Range {
    torch::Tensor values;
    torch::Tensor gradients;
    std::vector<torch::Tensor> moments;  ///< as they were named
  };

  FlatOptimizer(const std::vector<ParameterGroup>& groups, double lr, double weight_decay,
                std::vector<Moment> moments)
      : Optimizer(groups, lr, weight_decay), moments_(std::move(moments)) {
    adopt_layout();
  }

  /// Updates these elements. `steps` counts their updates, this one included. The gradients must not be
  /// changed.
  virtual void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) = 0;

  /// Whether `update_range` makes many passes over its range, so that it should get pieces that stay in the
  /// cache.
  virtual bool wants_pieces(const torch::Tensor& values) const { return values.is_cpu(); }

  /// Whether `update_range` multiplies the gradients by `gradient_scale()` on its way. For who doesn't, they
  /// are multiplied before.
  virtual bool takes_gradient_scale() const { return false; }
  double gradient_scale() const { return gradient_scale_; }
  /// The gradients times `gradient_scale()`.
  torch::Tensor scaled(const torch::Tensor& gradients) const {
    return gradient_scale_ == 1 ? gradients : gradients.mul(gradient_scale_);
  }

  void update() override {
    const std::vector<FlatRange>& ranges = flat_.begin_step();
    if (layout_ != flat_.layout()) adopt_layout();
    if (generation_ != flat_.generation()) cut(ranges);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      for (const Range& piece : pieces_[i]) update_range(piece, groups_[ranges[i].group], ranges[i].steps);
    }
    gradient_scale_ = 1;
  }

  torch::Tensor clip_grad_norm_in_step(double max_norm) override {
    const auto on_cpu = [](const torch::Tensor& gradients) { return gradients.is_cpu(); };
    if (!takes_gradient_scale() || !std::ranges::all_of(flat_.gradients(), on_cpu))
      return clip_grad_norm(max_norm);
    const torch::Tensor norm = grad_norm();
    gradient_scale_ = clip_factor(norm, max_norm);
    return norm;
  }

  NamedTensors moments(std::size_t slot) override {
    if (layout_ != flat_.layout()) adopt_layout();
    NamedTensors result;
    const FlatSlot& place = layout_->slots[slot];
    for (std::size_t m = 0; m < moments_.size(); ++m) {
      result.emplace_back(moments_[m].name, place.view(buffers_[m][place.buffer]));
    }
    return result;
  }

  void reset_moments(std::size_t slot) override {
    const NamedTensors views = moments(slot);
    for (std::size_t m = 0; m < moments_.size(); ++m) views[m].second.fill_(moments_[m].initial);
  }

 private:
  /// Makes moments for the layout, with the values that they had in the one before.
  void adopt_layout() {
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

  void cut(const std::vector<FlatRange>& ranges) {
    generation_ = flat_.generation();
    pieces_.clear();
    for (const FlatRange& range : ranges) {
      const torch::Tensor& values = flat_.values()[range.buffer];
      const std::int64_t length = wants_pieces(values) ? piece_length() : range.size;
      std::vector<Range>& pieces = pieces_.emplace_back();
      for (std::int64_t begin = 0; begin < range.size; begin += length) {
        const auto piece_of = [&](const torch::Tensor& buffer) {
          return buffer.narrow(0, range.offset + begin, std::min(length, range.size - begin));
        };
        Range piece{piece_of(values), piece_of(flat_.gradients()[range.buffer]), {}};
        for (const auto& buffers : buffers_) piece.moments.push_back(piece_of(buffers[range.buffer]));
        pieces.push_back(std::move(piece));
      }
    }
  }

  /// Enough to give each of ATen's threads its usual share, little enough for their caches.
  static std::int64_t piece_length() { return 32768 * std::max(1, at::get_num_threads()); }

  std::vector<Moment> moments_;
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<std::vector<torch::Tensor>> buffers_;  // by moment, then by buffer of the layout
  std::vector<std::vector<Range>> pieces_;           // by range of the last step
  std::uint64_t generation_ = 0;
  double gradient_scale_ = 1;
};

}  // namespace etude
