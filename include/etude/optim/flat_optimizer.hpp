#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude {

/// The base of optimizers that treat every element alike: the state lies flat beside the parameters, and an
/// update is a few operations on long vectors. To write one of your own, name its moments and override
/// `update_range`. Those that have a kernel which makes one pass over memory say so (`in_one_pass`), and get
/// the gradients wherever autograd has put them.
class FlatOptimizer : public Optimizer {
 public:
  ETUDE_INLINE torch::Tensor clip_grad_norm_in_step(double max_norm) override;

  ETUDE_INLINE void zero_grad() override;

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
                std::vector<Moment> moments);

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
  ETUDE_INLINE virtual bool in_one_pass() const;

  /// Whether LibTorch has a better kernel for such a vector than `update_range` is.
  ETUDE_INLINE virtual bool has_libtorch_kernel(const torch::Tensor& values) const;
  /// Calls it. It may change the gradients.
  ETUDE_INLINE virtual void update_by_libtorch(const Lists& lists, const ParamGroup& group,
                                               std::int64_t steps);

  double gradient_scale() const { return gradient_scale_; }
  /// The gradients times `gradient_scale()`.
  torch::Tensor scaled(const torch::Tensor& gradients) const;

  ETUDE_INLINE void update() override;

  ETUDE_INLINE NamedTensors moments(std::size_t slot) override;

  ETUDE_INLINE void reset_moments(std::size_t slot) override;

 private:
  /// A range, and of one parameter its slot.
  struct Piece {
    Range range;
    std::size_t slot = 0;
  };

  /// Our own kernels are for the CPU. What they are not for keeps its gradients flat.
  bool uses_kernels() const;

  /// Keeps the memory of the lists.
  static void clear(Lists& lists);

  void enlist(const Range& range, std::int64_t steps);

  /// Makes moments for the layout, with the values that they had in the one before.
  void adopt_layout();

  void cut(const std::vector<FlatRange>& ranges, bool apart);

  void cut_by_parameters(const FlatRange& range, std::vector<Piece>& pieces);

  void cut_by_length(const FlatRange& range, std::vector<Piece>& pieces);

  /// Enough to give each of ATen's threads its usual share, little enough for their caches.
  static std::int64_t piece_length();

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

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/flat_optimizer.ipp"
#endif
