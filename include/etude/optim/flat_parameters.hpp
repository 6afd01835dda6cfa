#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/error.hpp"
#include "etude/optim/clipping.hpp"
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
  explicit FlatParameters(std::vector<NamedTensors> groups) : groups_(std::move(groups)) { flatten(); }

  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// The tensors stay views of the memory, which lives on with them. Gradients that never came are undefined
  /// again.
  ~FlatParameters() {
    for (Part& part : parts_) {
      if (part.parameter.grad().is_same(part.gradient) && !part.has_gradient())
        part.parameter.mutable_grad().reset();
    }
  }

  /// Puts torn views back. Cheap when nothing was torn.
  /// Throws Error when a parameter has changed its shape.
  void mend();

  /// All gradients become zero, in one pass, and count as not there; or, with `apart`, undefined.
  void zero_grad(bool apart = false);

  /// Whether the gradients are where autograd has put them, each with the dtype, device and strides of its
  /// parameter. After `mend`.
  bool are_gradients_apart() const { return apart_; }

  /// Lays the gradients flat.
  void gather() {
    apart_ = false;
    mend();
  }

  /// The L2 norm of all gradients, as `l2_norm`.
  torch::Tensor grad_norm() {
    const torch::Tensor norm = l2_norm(all_gradients());
    found_.clear();
    return norm;
  }

  /// Clips by the norm of all gradients and returns the norm before, as `clip_norm`.
  torch::Tensor clip_grad_norm(double max_norm) {
    const torch::Tensor norm = clip_norm(all_gradients(), max_norm);
    found_.clear();
    return norm;
  }

  /// Limits every gradient element to [-limit, limit].
  void clip_grad_value(double limit) {
    clip_value(all_gradients(), limit);
    found_.clear();
  }

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

inline void FlatParameters::flatten() {
  const torch::NoGradGuard no_grad;
  FlatPlan plan = plan_flat(groups_, layout_.get());
  std::vector<torch::Tensor> values = plan.layout->allocate();
  std::map<std::string, std::size_t> old_slots;
  for (std::size_t i = 0; i < parts_.size(); ++i) old_slots.emplace(layout_->slots[i].name, i);

  std::vector<Part> parts;
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const FlatSlot& slot = plan.layout->slots[i];
    Part part{.parameter = plan.parameters[i], .gradient = {}};
    bool has_gradient = part.parameter.grad().defined();
    if (const auto old = old_slots.find(slot.name); old != old_slots.end()) {
      if (layout_->slots[old->second].sizes != slot.sizes) {
        throw Error(fmt::format("parameter '{}' changed its shape from {} to {}; make a new optimizer for it",
                                slot.name, layout_->slots[old->second].sizes, slot.sizes));
      }
      part.steps = parts_[old->second].steps;
      has_gradient = parts_[old->second].has_gradient();
    }
    slot.view(values[slot.buffer]).copy_(part.parameter);
    if (!has_gradient) part.parameter.mutable_grad().reset();
    parts.push_back(std::move(part));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const FlatSlot& slot = plan.layout->slots[i];
    parts[i].parameter.set_data(slot.view(values[slot.buffer]));
    parts[i].data = parts[i].parameter.data_ptr();
  }
  parts_ = std::move(parts);
  frozen_ = std::move(plan.frozen);
  layout_ = std::move(plan.layout);
  values_ = std::move(values);
  const bool had_gradients = !gradients_.empty();
  gradients_.clear();
  if (had_gradients && !apart_) make_gradients();
  ranges_outdated_ = true;
}

inline void FlatParameters::make_gradients() {
  ++generation_;
  gradients_ = layout_->allocate();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const FlatSlot& slot = layout_->slots[i];
    parts_[i].gradient = slot.view(gradients_[slot.buffer]).variable_data();
    take_gradient(parts_[i]);
  }
}

/// A gradient of another kind than its parameter, or one with a graph, must be copied to be used.
inline bool FlatParameters::may_stay_apart(std::size_t i) const {
  const torch::Tensor& gradient = parts_[i].parameter.grad();
  if (!gradient.defined()) return true;
  const FlatSlot& slot = layout_->slots[i];
  const torch::Tensor& values = values_[slot.buffer];
  return gradient.layout() == at::kStrided && gradient.scalar_type() == values.scalar_type() &&
         gradient.device() == values.device() && gradient.sizes() == slot.sizes &&
         gradient.strides() == slot.strides && !gradient.requires_grad();
}

inline at::TensorList FlatParameters::all_gradients() {
  mend();
  if (!apart_) return gradients_;
  found_.clear();
  for (const Part& part : parts_)
    if (part.parameter.grad().defined()) found_.push_back(part.parameter.grad());
  return found_;
}

inline bool FlatParameters::fits(const FlatSlot& slot, const torch::Tensor& parameter) const {
  const torch::Tensor& buffer = values_[slot.buffer];
  return parameter.scalar_type() == buffer.scalar_type() && parameter.device() == buffer.device() &&
         parameter.sizes() == slot.sizes &&
         (parameter.strides() == slot.strides || !parameter.is_non_overlapping_and_dense());
}

inline void FlatParameters::take_gradient(Part& part) {
  const torch::Tensor found = part.parameter.grad();
  if (found.defined()) {
    part.gradient.copy_(found.layout() == at::kStrided ? found.detach() : found.detach().to_dense());
  } else {
    part.gradient.zero_();
  }
  part.zero_version = found.defined() ? never : static_cast<std::int64_t>(part.gradient._version());
  part.parameter.mutable_grad() = part.gradient;
}

inline void FlatParameters::mend_values() {
  for (const auto& [name, tensor] : frozen_) {
    if (tensor.requires_grad()) return flatten();
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.parameter.data_ptr() == part.data) continue;
    const FlatSlot& slot = layout_->slots[i];
    if (!fits(slot, part.parameter)) return flatten();
    const torch::Tensor view = slot.view(values_[slot.buffer]);
    view.copy_(part.parameter);
    part.parameter.set_data(view);
  }
}

inline void FlatParameters::mend() {
  const torch::NoGradGuard no_grad;
  mend_values();
  if (apart_) {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (!may_stay_apart(i)) return gather();
    return;
  }
  if (gradients_.empty()) return make_gradients();
  for (Part& part : parts_)
    if (!part.parameter.grad().is_same(part.gradient)) take_gradient(part);
}

inline void FlatParameters::zero_grad(bool apart) {
  if (apart) {
    apart_ = true;
    for (const Part& part : parts_) part.parameter.mutable_grad().reset();
    return mend();
  }
  gather();
  for (const torch::Tensor& buffer : gradients_) buffer.zero_();
  for (Part& part : parts_) part.zero_version = static_cast<std::int64_t>(part.gradient._version());
}

inline const std::vector<FlatRange>& FlatParameters::begin_step() {
  mend();
  bool changed = std::exchange(ranges_outdated_, false);
  for (Part& part : parts_) {
    const bool active = part.has_gradient();
    changed |= active != part.active;
    part.active = active;
    if (!active) continue;
    ++part.steps;
    // The update writes to the buffer, of which autograd's check for changed tensors would know nothing.
    part.parameter.unsafeGetTensorImpl()->bump_version();
  }
  if (changed) {
    find_ranges();
  } else {
    for (FlatRange& range : ranges_) ++range.steps;
  }
  return ranges_;
}

inline void FlatParameters::find_ranges() {
  ++generation_;
  ranges_.clear();
  bool open = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const FlatSlot& slot = layout_->slots[i];
    if (!parts_[i].active || slot.size == 0) {
      open &= slot.size == 0;
      continue;
    }
    const std::int64_t end =
        slot.offset +
        detail::padded(slot.size, static_cast<std::int64_t>(parts_[i].parameter.element_size()));
    if (open && ranges_.back().buffer == slot.buffer && ranges_.back().group == slot.group &&
        ranges_.back().steps == parts_[i].steps) {
      ranges_.back().size = end - ranges_.back().offset;
      ranges_.back().last = i + 1;
    } else {
      ranges_.push_back({slot.buffer, slot.group, slot.offset, end - slot.offset, i, i + 1, parts_[i].steps});
      open = true;
    }
  }
}

}  // namespace etude
