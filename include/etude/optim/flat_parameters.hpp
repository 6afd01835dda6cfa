#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/flat_layout.hpp"

namespace etude {

/// Neighbouring parameters of one group that are updated together: each got a gradient in this step, and each
/// in as many steps before.
struct FlatRange {
  std::size_t buffer = 0;
  std::size_t group = 0;
  std::int64_t offset = 0;  ///< in elements
  std::int64_t size = 0;
  std::size_t first = 0;  ///< the slots first, ..., last - 1
  std::size_t last = 0;
  std::int64_t steps = 0;  ///< updates of these parameters, this one counted
};

/// Owns the memory of a model's parameters and gradients: one buffer of each for every device and dtype, in
/// which each group is one segment. The model's tensors become views of it, so that zeroing, clipping and
/// updating are one pass.
///
/// While the gradients lie flat, none is undefined: where none came it is zero, and `has_gradient` tells the
/// difference. It can, because every gradient view counts its own in-place changes and autograd accumulates
/// in place. (So a change in place by the user counts as a gradient too.)
///
/// Who can update from gradients that lie anywhere asks `zero_grad` to leave them apart: undefined, as
/// LibTorch has it, until autograd puts in what it has made. That saves to zero the buffer, to read it and to
/// write it, which is more than half of what an update's memory traffic is otherwise. `gather` lays them
/// flat.
///
/// Views may be torn at any time: `module.to(...)`, `torch::load`, `set_data`, `zero_grad(set_to_none)`, a
/// backward pass with `create_graph` (whose gradient is copied in, without its graph). Every function
/// below first takes over the values that it finds in the model and puts the views back; a change of device,
/// dtype or memory format, or a parameter that now requires a gradient, makes it lay everything flat anew.
/// Not for use while a backward pass is running.
class FlatParameters {
 public:
  /// Lays the parameters flat, and their gradients once that is needed. Frozen ones are left alone until they
  /// require a gradient; values and gradients that exist are kept. Throws ArgumentError as `plan_flat` does.
  explicit FlatParameters(std::vector<NamedTensors> groups);

  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// The tensors stay views of the memory, which lives on with them. Gradients that never came are undefined
  /// again.
  ~FlatParameters();

  /// Puts torn views back. Cheap when nothing was torn.
  /// Throws Error when a parameter has changed its shape.
  void mend();

  /// All gradients become zero, in one pass, and count as not there; or, with `apart`, undefined.
  void zero_grad(bool apart = false);

  /// Whether the gradients are where autograd has put them, each with the dtype, device and strides of its
  /// parameter. After `mend`.
  bool are_gradients_apart() const { return apart_; }

  /// Lays the gradients flat.
  void gather();

  /// The L2 norm of all gradients, as `l2_norm`.
  torch::Tensor grad_norm();

  /// Clips by the norm of all gradients and returns the norm before, as `clip_norm`.
  torch::Tensor clip_grad_norm(double max_norm);

  /// Limits every gradient element to [-limit, limit].
  void clip_grad_value(double limit);

  /// Counts a step for each parameter that has a gradient, and says how these lie in memory: normally one
  /// range a group. The ranges are those of the last step (but for `steps`) as long as `generation` stays.
  const std::vector<FlatRange>& begin_step();

  std::uint64_t generation() const { return generation_; }

  /// Replaced (never changed) when everything is laid flat anew.
  const std::shared_ptr<const FlatLayout>& layout() const { return layout_; }
  const std::vector<torch::Tensor>& values() const { return values_; }  ///< one for each buffer
  /// One for each buffer, if they aren't apart.
  const std::vector<torch::Tensor>& gradients() const { return gradients_; }

  /// The model's tensor of a slot.
  const torch::Tensor& parameter(std::size_t slot) const { return parts_[slot].parameter; }
  /// Whether a gradient came since the last `zero_grad`.
  bool has_gradient(std::size_t slot) const { return parts_[slot].has_gradient(); }
  /// In how many steps this parameter had a gradient.
  std::int64_t steps(std::size_t slot) const { return parts_[slot].steps; }
  void set_steps(std::size_t slot, std::int64_t steps) {
    parts_[slot].steps = steps;
    ranges_outdated_ = true;
  }

 private:
  struct Part {
    torch::Tensor parameter;
    torch::Tensor gradient;         // our view; undefined before the first `gather`
    const void* data = nullptr;     // where our view of the values begins
    std::int64_t zero_version = 0;  // of `gradient`, when it was last zeroed
    std::int64_t steps = 0;
    bool active = false;  // had a gradient at the last step

    bool has_gradient() const {
      const torch::Tensor& now = parameter.grad();
      if (!now.defined() || !now.is_same(gradient)) return now.defined();
      return static_cast<std::int64_t>(gradient._version()) != zero_version;
    }
  };

  void flatten();
  void mend_values();
  void make_gradients();
  bool may_stay_apart(std::size_t slot) const;
  at::TensorList all_gradients();
  bool fits(const FlatSlot& slot, const torch::Tensor& parameter) const;
  static void take_gradient(Part& part);
  void find_ranges();

  static constexpr std::int64_t never = -1;  // a version that no tensor has

  std::vector<NamedTensors> groups_;
  NamedTensors frozen_;
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<torch::Tensor> values_;
  std::vector<torch::Tensor> gradients_;  // empty before the first `gather`
  std::vector<torch::Tensor> found_;      // gradients that are apart, while something is done with them
  bool apart_ = false;
  std::vector<Part> parts_;  // one for each slot
  std::vector<FlatRange> ranges_;
  bool ranges_outdated_ = true;
  std::uint64_t generation_ = 0;
};

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/flat_parameters.ipp"
#endif
