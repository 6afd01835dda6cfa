#include "etude/optim/flat_parameters.hpp"

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/storage.hpp"
#include "etude/optim/clipping.hpp"
#include "etude/optim/flat_layout.hpp"

namespace etude::inline v0 {

FlatParameters::FlatParameters(std::vector<NamedTensors> groups) : groups_(std::move(groups)) { flatten(); }

FlatParameters::~FlatParameters() {
  for (Part& part : parts_) {
    if (part.parameter.grad().is_same(part.gradient) && !part.has_gradient())
      part.parameter.mutable_grad().reset();
  }
}

void FlatParameters::gather() {
  apart_ = false;
  mend();
}

void FlatParameters::keep_shard(FlatShard shard) {
  shard_ = std::move(shard);
  if (shard_.count > 1) {
    always_flat_ = true;
    apart_ = false;
  }
  flatten();
}

void FlatParameters::gather_values() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (units_[i].owned.defined())
      release(i);
    else
      layout_->gather(i, values_[i]);
  }
}

bool FlatParameters::hold_unit(std::size_t unit) {
  bool was_away = false;
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (layout_->buffers[i].unit == unit) was_away |= hold(i);
  return was_away;
}

void FlatParameters::release_unit(std::size_t unit) {
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (layout_->buffers[i].unit == unit) release(i);
}

void FlatParameters::hold_units() {
  for (std::size_t i = 0; i < units_.size(); ++i) hold(i);
}

void FlatParameters::release_units() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].owned.defined() || units_[i].is_away) continue;
    for (const auto& [begin, size, kept] : layout_->segments(i))
      units_[i].owned.narrow(0, kept, size).copy_(values_[i].narrow(0, begin, size));
    release(i);
  }
}

void FlatParameters::make_units() {
  units_.assign(values_.size(), {});
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const auto& buffer = layout_->buffers[i];
    if (!layout_->is_sharded() || buffer.unit == FlatLayout::no_unit) continue;
    Unit& unit = units_[i];
    unit.owned = at::full({buffer.size / layout_->shard.count}, 0, buffer.options);
    unit.nothing = at::full({}, std::numeric_limits<double>::quiet_NaN(), buffer.options);
    for (const auto& [begin, size, kept] : layout_->segments(i))
      unit.owned.narrow(0, kept, size).copy_(values_[i].narrow(0, begin, size));
  }
}

bool FlatParameters::hold(std::size_t buffer) {
  if (!units_[buffer].is_away) return false;
  const torch::NoGradGuard no_grad;
  const torch::Tensor& values = values_[buffer];
  libtorch::resize_storage(values, values.nbytes());
  for (const auto& [begin, size, kept] : layout_->segments(buffer))
    values.narrow(0, begin, size).copy_(units_[buffer].owned.narrow(0, kept, size));
  layout_->gather(buffer, values);
  units_[buffer].is_away = false;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (layout_->slots[i].buffer != buffer) continue;
    parts_[i].parameter.set_data(layout_->slots[i].view(values));
    parts_[i].data = parts_[i].parameter.data_ptr();
  }
  return true;
}

/// Empties the values' storage but keeps it, since a backward pass may have saved views of it.
void FlatParameters::release(std::size_t buffer) {
  Unit& unit = units_[buffer];
  if (!unit.owned.defined() || unit.is_away) return;
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (layout_->slots[i].buffer != buffer) continue;
    parts_[i].parameter.set_data(unit.nothing.expand(layout_->slots[i].sizes));
    parts_[i].data = nullptr;
  }
  libtorch::resize_storage(values_[buffer], 0);
  unit.is_away = true;
}

torch::Tensor FlatParameters::grad_norm() {
  torch::Tensor norm = norm_of(all_gradients());
  found_.clear();
  return norm;
}

torch::Tensor FlatParameters::norm_of(at::TensorList gradients) const {
  torch::Tensor norm = l2_norm(gradients);
  if (!layout_->is_sharded()) return norm;
  // The squares of the shares' norms add up to the square of the whole norm.
  const torch::Tensor square = norm.to(at::kDouble).square();
  layout_->shard.sum(square);
  return square.sqrt().to(norm.scalar_type());
}

torch::Tensor FlatParameters::clip_grad_norm(double max_norm) {
  const at::TensorList gradients = all_gradients();
  torch::Tensor norm = norm_of(gradients);
  scale_to_norm(gradients, norm, max_norm);
  found_.clear();
  return norm;
}

void FlatParameters::clip_grad_value(double limit) {
  clip_value(all_gradients(), limit);
  found_.clear();
}

bool FlatParameters::multiply_gradients(double factor) {
  const torch::Tensor non_finite = multiply_and_check(all_gradients(), factor);
  found_.clear();
  if (layout_->is_sharded()) layout_->shard.sum(non_finite);
  return non_finite.item<double>() == 0;
}

void FlatParameters::flatten(const std::unordered_set<std::string>& sparse) {
  const torch::NoGradGuard no_grad;
  if (gradients_are_sharded_)
    throw Error(
        "the parameters changed their device, dtype or memory format, or another one requires a gradient, "
        "while only a shard of the gradients is kept: change them between a step and the next backward pass");
  hold_units();
  FlatPlan plan = plan_flat(groups_, layout_.get(), shard_, sparse);
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
        throw Error(
            fmt::format("parameter '{}' changed its shape from {} to {}: create a new optimizer for it",
                        slot.name, layout_->slots[old->second].sizes, slot.sizes));
      }
      part.steps = parts_[old->second].steps;
      part.was_flat = parts_[old->second].was_flat;
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
  has_sparse_ = std::ranges::any_of(layout_->buffers, &FlatLayout::Buffer::is_sparse);
  make_units();
  const bool had_gradients = !gradients_.empty();
  gradients_.clear();
  if (had_gradients && !apart_) make_gradients();
  ranges_outdated_ = true;
}

void FlatParameters::make_gradients() {
  ++generation_;
  owned_.clear();
  if (layout_->shard.gradients) {
    gradients_ = owned_ = layout_->allocate_owned();
    for (Part& part : parts_) part.gradient.reset();
    return;
  }
  for (const FlatLayout::Buffer& buffer : layout_->buffers)
    gradients_.push_back(buffer.is_sparse ? torch::Tensor() : at::full({buffer.size}, 0, buffer.options));
  if (layout_->is_sharded())
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      for (const FlatSegment& segment : layout_->segments(i))
        owned_.push_back(gradients_[i].narrow(0, segment.begin, segment.size));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (is_sparse(i)) continue;
    const FlatSlot& slot = layout_->slots[i];
    parts_[i].gradient = slot.view(gradients_[slot.buffer]).variable_data();
    take_gradient(parts_[i]);
  }
}

bool FlatParameters::has_none_yet() const {
  return gradients_.empty() && std::ranges::none_of(parts_, [](const Part& part) { return part.was_flat; });
}

void FlatParameters::gather_gradient(std::size_t slot) {
  const torch::NoGradGuard no_grad;
  Part& part = parts_[slot];
  if (!part.parameter.grad().is_same(part.gradient)) take_gradient(part);
}

std::vector<std::size_t> FlatParameters::new_sparse() const {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (const torch::Tensor& gradient = parts_[i].parameter.grad();
        gradient.defined() && gradient.is_sparse() && !is_sparse(i))
      result.push_back(i);
  return result;
}

void FlatParameters::make_sparse(const std::vector<std::size_t>& slots) {
  if (slots.empty()) return;
  std::unordered_set<std::string> names;
  for (const std::size_t slot : slots) names.insert(layout_->slots[slot].name);
  flatten(names);
}

const torch::Tensor& FlatParameters::coalesced_gradient(std::size_t slot) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& gradient = parts_[slot].parameter.mutable_grad();
  if (!gradient.defined()) return gradient;
  const torch::Tensor& values = values_[layout_->slots[slot].buffer];
  if (gradient.requires_grad()) gradient = gradient.detach();
  if (gradient.scalar_type() != values.scalar_type() || gradient.device() != values.device())
    gradient = gradient.to(values.device(), values.scalar_type());
  if (gradient.is_sparse() && !gradient.is_coalesced()) gradient = gradient.coalesce();
  return gradient;
}

/// False for a gradient that must be copied because it has a graph, or because its layout, dtype, device,
/// shape or strides differ from the parameter's.
bool FlatParameters::may_stay_apart(std::size_t i) const {
  const torch::Tensor& gradient = parts_[i].parameter.grad();
  if (!gradient.defined() || is_sparse(i)) return true;
  const FlatSlot& slot = layout_->slots[i];
  const torch::Tensor& values = values_[slot.buffer];
  return gradient.layout() == at::kStrided && gradient.scalar_type() == values.scalar_type() &&
         gradient.device() == values.device() && gradient.sizes() == slot.sizes &&
         gradient.strides() == slot.strides && !gradient.requires_grad();
}

at::TensorList FlatParameters::all_gradients() {
  mend();
  if (!apart_ && !has_sparse_) return layout_->is_sharded() ? owned_ : gradients_;
  found_.clear();
  if (!apart_)
    for (const torch::Tensor& buffer : gradients_)
      if (buffer.defined()) found_.push_back(buffer);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const torch::Tensor& gradient = parts_[i].parameter.grad();
    if (!gradient.defined()) continue;
    if (is_sparse(i)) {
      const torch::Tensor& whole = coalesced_gradient(i);
      found_.push_back(whole.is_sparse() ? whole._values() : whole);
    } else if (apart_) {
      found_.push_back(gradient);
    }
  }
  return found_;
}

bool FlatParameters::fits(const FlatSlot& slot, const torch::Tensor& parameter) const {
  const torch::Tensor& buffer = values_[slot.buffer];
  return parameter.scalar_type() == buffer.scalar_type() && parameter.device() == buffer.device() &&
         parameter.sizes() == slot.sizes &&
         (parameter.strides() == slot.strides || !parameter.is_non_overlapping_and_dense());
}

void FlatParameters::take_gradient(Part& part) {
  const torch::Tensor found = part.parameter.grad();
  if (!part.gradient.defined()) return;
  if (found.defined() ? found.is_sparse() : !part.was_flat) return;
  part.was_flat = true;
  if (found.defined()) {
    part.gradient.copy_(found.layout() == at::kStrided ? found.detach() : found.detach().to_dense());
  } else {
    part.gradient.zero_();
  }
  part.zero_version = found.defined() ? never : static_cast<std::int64_t>(part.gradient._version());
  part.parameter.mutable_grad() = part.gradient;
}

void FlatParameters::mend_values() {
  for (const auto& [name, tensor] : frozen_) {
    if (tensor.requires_grad()) return flatten();
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    const FlatSlot& slot = layout_->slots[i];
    if (const Unit& unit = units_[slot.buffer]; unit.is_away) {
      if (part.parameter.is_alias_of(unit.nothing)) continue;
      throw Error(fmt::format(
          "parameter '{}' was changed while its values were away, as ShardedDataParallel<3> keeps them",
          slot.name));
    }
    if (part.parameter.data_ptr() == part.data) continue;
    if (!fits(slot, part.parameter)) return flatten();
    const torch::Tensor view = slot.view(values_[slot.buffer]);
    view.copy_(part.parameter);
    part.parameter.set_data(view);
  }
}

void FlatParameters::mend() {
  const torch::NoGradGuard no_grad;
  mend_values();
  if (!always_flat_) make_sparse(new_sparse());
  if (apart_) {
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (!may_stay_apart(i)) return gather();
    return;
  }
  if (gradients_.empty()) return make_gradients();
  if (layout_->shard.gradients) return;
  for (Part& part : parts_)
    if (!part.parameter.grad().is_same(part.gradient)) take_gradient(part);
}

void FlatParameters::zero_grad(bool apart) {
  gradients_are_sharded_ = false;
  if (apart && !always_flat_) {
    apart_ = true;
    for (const Part& part : parts_) part.parameter.mutable_grad().reset();
    return mend();
  }
  if (!always_flat_ && has_none_yet()) {  // sparse gradients need no buffer
    apart_ = false;
    for (const Part& part : parts_) part.parameter.mutable_grad().reset();
    return;
  }
  gather();
  for (const torch::Tensor& buffer : gradients_)
    if (buffer.defined()) buffer.zero_();
  if (layout_->shard.gradients) {
    for (Part& part : parts_) {
      part.parameter.mutable_grad().reset();
      part.reduced = false;
    }
    return;
  }
  for (Part& part : parts_) {
    if (!part.gradient.defined() || !part.was_flat) {
      part.parameter.mutable_grad().reset();
      continue;
    }
    part.zero_version = static_cast<std::int64_t>(part.gradient._version());
  }
}

const std::vector<FlatRange>& FlatParameters::begin_step() {
  mend();
  if (always_flat_) make_sparse(new_sparse());
  gradients_are_sharded_ = false;
  bool changed = std::exchange(ranges_outdated_, false);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (is_sparse(i)) coalesced_gradient(i);
    const bool active = part.has_gradient();
    changed |= active != part.active;
    part.active = active;
    if (!active) continue;
    ++part.steps;
    // The update writes to the buffer, so autograd wouldn't notice that the parameter changed in place.
    part.parameter.unsafeGetTensorImpl()->bump_version();
  }
  if (changed) {
    find_ranges();
  } else {
    for (FlatRange& range : ranges_) ++range.steps;
  }
  return ranges_;
}

void FlatParameters::repeat_step() {
  for (Part& part : parts_) {
    if (!part.active) continue;
    ++part.steps;
    part.parameter.unsafeGetTensorImpl()->bump_version();
  }
  for (FlatRange& range : ranges_) ++range.steps;
}

/// Joins adjacent parameters with the same buffer, group and number of steps into ranges, padding included.
void FlatParameters::find_ranges() {
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

void FlatParameters::set_has_gradient(std::size_t slot, bool has_gradient) {
  Part& part = parts_[slot];
  if (!part.gradient.defined()) {
    part.reduced = has_gradient;
  } else if (part.has_gradient() != has_gradient) {
    part.zero_version = has_gradient ? never : static_cast<std::int64_t>(part.gradient._version());
    part.parameter.mutable_grad() = part.gradient;
    part.was_flat = true;
  }
}

void FlatParameters::set_steps(std::size_t slot, std::int64_t steps) {
  parts_[slot].steps = steps;
  ranges_outdated_ = true;
  ++generation_;  // even if the ranges stay the same, their steps change
}

bool FlatParameters::Part::has_gradient() const {
  const torch::Tensor& now = parameter.grad();
  if (!now.defined() || !now.is_same(gradient)) return now.defined() || reduced;
  return static_cast<std::int64_t>(gradient._version()) != zero_version;
}

}  // namespace etude::inline v0
