#include <torch/types.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "etude/optim/flat_optimizer.hpp"

namespace etude::inline v0 {

std::optional<FlatOptimizer::Average> FlatOptimizer::average() const { return std::nullopt; }

bool FlatOptimizer::use_weights(WeightsInUse which) {
  using enum WeightsInUse;
  const auto average = this->average();
  if (!average || which == in_use_ || (in_use_ == result && which == averaged)) return false;
  const torch::NoGradGuard no_grad;
  flat_.mend();
  flat_.release_units();  // so that the shares have the current values
  if (in_use_ == averaged) {
    if (which == training) kept_.restore();
    kept_.clear();
    in_use_ = which;
    return which == training;
  }
  try {
    if (which == averaged) keep_training_weights();
    move_values(*average, /*back=*/which == training);
  } catch (...) {  // for lack of memory, for example
    kept_.restore();
    kept_.clear();
    throw;
  }
  in_use_ = which;
  return true;
}

void FlatOptimizer::load_state(const NamedTensors& state) {
  if (average()) flat_.release_units();
  Optimizer::load_state(state);
  in_use_ = WeightsInUse::training;
  kept_.clear();
}

void FlatOptimizer::keep_training_weights() {
  const FlatLayout& layout = *flat_.layout();
  for (std::size_t b = 0; b < layout.buffers.size(); ++b)
    if (flat_.owned_values(b).defined()) kept_.add(flat_.owned_values(b));
  // Copies whole parameters rather than buffers, which a new layout replaces.
  for (std::size_t i = 0; i < layout.slots.size(); ++i)
    if (flat_.steps(i) > 0 && !flat_.owned_values(layout.slots[i].buffer).defined())
      kept_.add(flat_.parameter(i));
}

void FlatOptimizer::move_values(const Average& average, bool back) {
  const double factor = back ? -average.factor : average.factor;
  for (std::size_t i = 0; i < flat_.layout()->slots.size(); ++i) {
    if (flat_.steps(i) == 0) continue;
    if (layout_ != flat_.layout()) adopt_layout();
    const FlatSlot& slot = layout_->slots[i];
    const torch::Tensor &all = flat_.values()[slot.buffer], &owned = flat_.owned_values(slot.buffer);
    for (const FlatSegment& part : layout_->segments(slot.buffer, slot.offset, slot.offset + slot.size)) {
      const auto share_of = [&](const torch::Tensor& buffer) {
        return buffer.narrow(0, part.kept, part.size).to(all.device());
      };
      const torch::Tensor values = owned.defined() ? share_of(owned) : all.narrow(0, part.begin, part.size);
      const torch::Tensor moment = share_of(buffers_[average.moment][slot.buffer]);
      if (!rounds(all.options())) {
        values.add_(moment, factor);
        continue;
      }
      // The compensation still belongs to the training's weights.
      const bool is_compensated = !back && rounding_->rounding == Rounding::kahan;
      const torch::Tensor wide = detail::in_float32(
          values, is_compensated ? share_of(buffers_.back()[slot.buffer]) : torch::Tensor());
      values.copy_(wide.add_(moment, factor));
    }
  }
  if (flat_.layout()->is_sharded()) flat_.gather_values();
}

std::vector<torch::Tensor> FlatOptimizer::training_weights_of_units() const {
  std::vector<torch::Tensor> result(average() ? layout_->buffers.size() : 0);
  for (std::size_t b = 0; b < result.size(); ++b) {
    const torch::Tensor& owned = flat_.owned_values(b);
    if (!owned.defined()) continue;
    const torch::Tensor* kept = kept_.find(owned);
    result[b] = layout_->gathered(b, kept ? *kept : owned);
  }
  return result;
}

torch::Tensor FlatOptimizer::training_weights(std::size_t slot, const torch::Tensor& moment,
                                              const std::vector<torch::Tensor>& units) const {
  const FlatSlot& place = layout_->slots[slot];
  torch::Tensor values = flat_.parameter(slot).detach();
  if (place.buffer < units.size() && units[place.buffer].defined())
    values = place.view(units[place.buffer]);
  else if (const torch::Tensor* kept = kept_.find(flat_.parameter(slot)))
    values = *kept;
  if (in_use_ != WeightsInUse::result) return values;
  return values.sub(moment.to(values.device(), values.scalar_type()), average()->factor);
}

void FlatOptimizer::set_training_weights(std::size_t slot, const torch::Tensor& weights) {
  const FlatSlot& place = layout_->slots[slot];
  if (const torch::Tensor& owned = flat_.owned_values(place.buffer); owned.defined())
    store(place, owned, weights);
  else
    flat_.parameter(slot).detach().copy_(weights);
}

}  // namespace etude::inline v0
