#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
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
/// `update_range`. Those that have a kernel which makes one pass over memory say so (`in_one_pass`), and get
/// the gradients wherever autograd has put them.
class FlatOptimizer : public Optimizer {
 public:
  torch::Tensor clip_grad_norm_in_step(double max_norm) override {
    if (!uses_kernels()) return clip_grad_norm(max_norm);
    const torch::Tensor norm = grad_norm();
    gradient_scale_ = clip_factor(norm, max_norm);
    return norm;
  }

  void zero_grad() override { flat_.zero_grad(/*apart=*/uses_kernels()); }

 protected:
  /// A value that is kept for every element, and what it is before the first step.
  struct Moment {
    std::string name;
    double initial = 0;
  };

  /// Elements that are updated alike, in tensors of one shape: neighbours of several parameters as flat
  /// views, or one parameter.
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

  /// Ranges, as LibTorch's kernels take them.
  struct Lists {
    std::vector<torch::Tensor> values, gradients, steps;
    std::vector<std::vector<torch::Tensor>> moments;  ///< as they were named
  };

  /// Updates these elements. `steps` counts their updates, this one included. The gradients must not be
  /// changed.
  virtual void update_range(const Range& range, const ParamGroup& group, std::int64_t steps) = 0;

  /// Whether `update_range` makes one pass over memory, on which it multiplies the gradients by
  /// `gradient_scale()`. Else it gets, on the CPU, pieces that stay in the cache from one pass to the next.
  virtual bool in_one_pass() const { return false; }

  /// Whether LibTorch has a better kernel for such a vector than `update_range` is.
  virtual bool has_libtorch_kernel(const torch::Tensor& /*values*/) const { return false; }
  /// Calls it. It may change the gradients.
  virtual void update_by_libtorch(const Lists&, const ParamGroup&, std::int64_t /*steps*/) {}

  double gradient_scale() const { return gradient_scale_; }
  /// The gradients times `gradient_scale()`.
  torch::Tensor scaled(const torch::Tensor& gradients) const {
    return gradient_scale_ == 1 ? gradients : gradients.mul(gradient_scale_);
  }

  void update() override {
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
  /// A range, and of one parameter its slot.
  struct Piece {
    Range range;
    std::size_t slot = 0;
  };

  /// Our own kernels are for the CPU. What they are not for keeps its gradients flat.
  bool uses_kernels() const {
    const auto is_plain = [](const torch::Tensor& values) {
      return values.is_cpu() && (values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble);
    };
    return in_one_pass() && std::ranges::all_of(flat_.values(), is_plain);
  }

  /// Keeps the memory of the lists.
  static void clear(Lists& lists) {
    for (auto* list : {&lists.values, &lists.gradients, &lists.steps}) list->clear();
    for (auto& list : lists.moments) list.clear();
  }

  void enlist(const Range& range, std::int64_t steps) {
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

  void cut(const std::vector<FlatRange>& ranges, bool apart) {
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

  void cut_by_parameters(const FlatRange& range, std::vector<Piece>& pieces) {
    for (std::size_t i = range.first; i < range.last; ++i) {
      const FlatSlot& slot = layout_->slots[i];
      if (slot.size == 0) continue;
      Range piece{slot.view(flat_.values()[slot.buffer]), {}, {}};
      for (const auto& buffers : buffers_) piece.moments.push_back(slot.view(buffers[slot.buffer]));
      pieces.push_back({std::move(piece), i});
    }
  }

  void cut_by_length(const FlatRange& range, std::vector<Piece>& pieces) {
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

  /// Enough to give each of ATen's threads its usual share, little enough for their caches.
  static std::int64_t piece_length() { return 32768 * std::max(1, at::get_num_threads()); }

  std::vector<Moment> moments_;
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<std::vector<torch::Tensor>> buffers_;  // by moment, then by buffer of the layout
  std::vector<std::vector<Piece>> pieces_;           // by range of the last step
  bool pieces_are_apart_ = false;
  Lists lists_;  // empty between steps, and kept for its memory
  std::uint64_t generation_ = 0;
  double gradient_scale_ = 1;
};

}  // namespace etude
