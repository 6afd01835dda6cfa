#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/optim/flat_layout.hpp"

namespace etude::inline v0 {

/// Adjacent parameters of one group that are updated together: each has a gradient in this step, and each has
/// had the same number of updates before.
struct FlatRange {
  std::size_t buffer = 0;
  std::size_t group = 0;
  std::int64_t offset = 0;  ///< in elements
  std::int64_t size = 0;
  std::size_t first = 0;  ///< the slots first, ..., last - 1
  std::size_t last = 0;
  std::int64_t steps = 0;  ///< number of updates of these parameters, including this one
};

/// Owns the memory of a model's parameters and gradients: one buffer of each per device and dtype, with one
/// segment per group. The model's tensors become views of these buffers, so that zeroing, clipping and
/// updating take one pass each.
///
/// Once a parameter has had a flat gradient, its gradient is never undefined again: a missing gradient is
/// zero, and `has_gradient` tells the difference. That works because each gradient view has a counter of
/// in-place changes and autograd accumulates in place. (So in-place changes by the user count as a gradient
/// too.)
///
/// A parameter whose first gradient is sparse (COO) moves to a separate buffer. Its gradients stay where
/// autograd stores them, and are undefined in between, so that only their rows take memory and time. Norms,
/// clipping and steps coalesce them.
///
/// An optimizer that can use gradients anywhere in memory tells `zero_grad` to keep them `apart`: as usual in
/// LibTorch, they are undefined until autograd stores them. That saves zeroing, reading and writing the
/// buffer, more than half of an update's memory traffic. `gather` makes them flat.
///
/// Views may be broken at any time by `module.to(...)`, `torch::load`, `set_data`, `zero_grad(set_to_none)`,
/// or a backward pass with `create_graph` (whose gradient is copied in, without its graph). Every function
/// below first copies the values that it finds in the model to the buffers and restores the views; after a
/// change of device, dtype or memory format, or when another parameter requires a gradient, it builds a new
/// layout. Must not be used while a backward pass is running.
class FlatParameters {
 public:
  /// Moves the parameters to flat buffers, and their gradients once that is needed. Frozen parameters are
  /// left alone until they require a gradient; existing values and gradients are kept. Throws ArgumentError
  /// as `plan_flat` does.
  explicit FlatParameters(std::vector<NamedTensors> groups);

  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  /// The model's tensors remain views, which keep the memory alive. Missing gradients become undefined again.
  ~FlatParameters();

  /// Restores broken views. Cheap if there are none. Throws Error if a parameter changed its shape.
  void mend();

  /// Zeroes all gradients in one pass and marks them as missing; with `apart`, makes them undefined instead.
  void zero_grad(bool apart = false);

  /// True if the gradients are where autograd stored them, each with the dtype, device and strides of its
  /// parameter. Call `mend` first.
  bool are_gradients_apart() const { return apart_; }

  /// Makes the gradients flat.
  void gather();

  /// Keeps gradients flat from now on: `zero_grad` doesn't keep them apart. Parameters with sparse gradients
  /// move only when `make_sparse` is called, so that all processes have the same layout.
  void keep_gradients_flat() { always_flat_ = true; }

  /// Makes one parameter's gradient flat if autograd has stored a dense one elsewhere.
  void gather_gradient(std::size_t slot);

  /// True if a parameter's gradients aren't flat because they are sparse.
  bool is_sparse(std::size_t slot) const { return layout_->buffers[layout_->slots[slot].buffer].is_sparse; }
  /// The slots of parameters that have a sparse gradient but are still in a shared buffer.
  std::vector<std::size_t> new_sparse() const;
  /// Moves each of these parameters to a separate buffer. Throws ArgumentError if there are shards.
  void make_sparse(const std::vector<std::size_t>& slots);
  /// Sets the gradient of a parameter that `is_sparse` as if autograd had stored it; it may be undefined.
  void set_sparse_gradient(std::size_t slot, torch::Tensor gradient) {
    parts_[slot].parameter.mutable_grad() = std::move(gradient);
  }
  /// Returns the gradient of such a parameter, coalesced if it is sparse.
  const torch::Tensor& coalesced_gradient(std::size_t slot);

  /// Prepares updates of one share of each buffer; each process has a different one. Values stay whole. Norms
  /// and clipping read this share of the gradients, once GradientReducer has summed them; the norm covers all
  /// shares. With `shard.gradients`, only this share of the gradients is kept, and the parameters' gradients
  /// are undefined between backward passes. All processes must call the functions below in the same order.
  void keep_shard(FlatShard shard);

  /// Records that only this process's share of the gradients holds sums: until the next step or `zero_grad`,
  /// a change of the layout throws Error.
  void mark_gradients_sharded() { gradients_are_sharded_ = layout_->is_sharded(); }

  /// After a step, takes the other shares of the values from their owners. The values of units are freed.
  void gather_values();

  /// Takes the values of a unit from their owners if they have been freed. Returns true if they had been.
  bool hold_unit(std::size_t unit);
  /// Frees the values of a unit outside of the owned share; until `hold_unit`, its parameters read as NaN.
  void release_unit(std::size_t unit);
  void hold_units();
  /// Frees all units. Unlike `release_unit`, keeps changes that were made to their values.
  void release_units();

  /// The L2 norm of all gradients, computed like `l2_norm`.
  torch::Tensor grad_norm();

  /// Clips by the norm of all gradients and returns the norm before clipping, like `clip_norm`.
  torch::Tensor clip_grad_norm(double max_norm);

  /// Clamps every gradient element to [-limit, limit].
  void clip_grad_value(double limit);

  /// Multiplies the gradients. Returns true if all of them, in all shares, were finite.
  bool multiply_gradients(double factor);

  /// Counts a step for each parameter that has a gradient, and returns the ranges in memory to update:
  /// normally one per group. Except for `steps`, they are the same as in the last step while `generation`
  /// stays the same.
  const std::vector<FlatRange>& begin_step();

  /// Counts another step of the same parameters as in the last step.
  void repeat_step();
  /// The ranges of the last step.
  const std::vector<FlatRange>& ranges() const { return ranges_; }

  std::uint64_t generation() const { return generation_; }

  /// Replaced (never modified) when the layout changes.
  const std::shared_ptr<const FlatLayout>& layout() const { return layout_; }
  const std::vector<torch::Tensor>& values() const { return values_; }  ///< one per buffer
  /// The owned share of a unit's buffer; undefined for other buffers.
  const torch::Tensor& owned_values(std::size_t buffer) const { return units_[buffer].owned; }
  /// One tensor per buffer, unless the gradients are apart. If `layout()->shard.gradients`, each holds only
  /// the owned share. Undefined for a buffer with sparse gradients.
  const std::vector<torch::Tensor>& gradients() const { return gradients_; }

  /// The model's parameter in a slot.
  const torch::Tensor& parameter(std::size_t slot) const { return parts_[slot].parameter; }
  /// True if the parameter has received a gradient since the last `zero_grad`.
  bool has_gradient(std::size_t slot) const { return parts_[slot].has_gradient(); }
  /// True if any parameter has received one.
  bool has_gradients() const { return std::ranges::any_of(parts_, &Part::has_gradient); }
  /// Sets `has_gradient` for a flat gradient that was written by something other than autograd.
  void set_has_gradient(std::size_t slot, bool has_gradient);
  /// The number of steps in which this parameter had a gradient.
  std::int64_t steps(std::size_t slot) const { return parts_[slot].steps; }
  void set_steps(std::size_t slot, std::int64_t steps);

 private:
  struct Part {
    torch::Tensor parameter;
    torch::Tensor gradient;  // view of the buffer; undefined before the first `gather`, and if it is sparse
    const void* data = nullptr;     // start of the parameter's view of the values
    std::int64_t zero_version = 0;  // the version of `gradient` when it was last zeroed
    std::int64_t steps = 0;
    bool active = false;    // had a gradient in the last step
    bool reduced = false;   // has a gradient of which only a shard is kept
    bool was_flat = false;  // has had a flat gradient; before that, autograd stores the first one elsewhere

    bool has_gradient() const;
  };

  /// The tensors that are kept for a buffer that belongs to a unit.
  struct Unit {
    torch::Tensor owned = {};    // the owned share of the values; undefined for other buffers
    torch::Tensor nothing = {};  // a NaN scalar that replaces freed values
    bool is_away = false;
  };

  void flatten(const std::unordered_set<std::string>& sparse = {});
  void make_units();
  bool hold(std::size_t buffer);
  void release(std::size_t buffer);
  void mend_values();
  void make_gradients();
  bool has_none_yet() const;
  bool may_stay_apart(std::size_t slot) const;
  at::TensorList all_gradients();
  torch::Tensor norm_of(at::TensorList gradients) const;
  bool fits(const FlatSlot& slot, const torch::Tensor& parameter) const;
  static void take_gradient(Part& part);
  void find_ranges();

  static constexpr std::int64_t never = -1;  // a version number that no tensor has

  std::vector<NamedTensors> groups_;
  NamedTensors frozen_;
  bool has_sparse_ = false;
  std::shared_ptr<const FlatLayout> layout_;
  std::vector<torch::Tensor> values_;
  std::vector<Unit> units_;               // one per buffer
  std::vector<torch::Tensor> gradients_;  // empty before the first `gather`
  std::vector<torch::Tensor> owned_;      // the shards of `gradients_`, if sharded
  std::vector<torch::Tensor> found_;      // result of `all_gradients` if some aren't flat
  FlatShard shard_;
  bool gradients_are_sharded_ = false;
  bool apart_ = false;
  bool always_flat_ = false;
  std::vector<Part> parts_;  // one per slot
  std::vector<FlatRange> ranges_;
  bool ranges_outdated_ = true;
  std::uint64_t generation_ = 0;
};

}  // namespace etude::inline v0
