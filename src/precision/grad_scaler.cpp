#include "etude/precision/grad_scaler.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(static_cast<float>(options.init_scale)) {
  detail::check_fields(options);
}

torch::Tensor GradScaler::scale(const torch::Tensor& loss) {
  has_scaled_ = true;
  return loss * get_scale();
}

bool GradScaler::unscale(Optimizer& optimizer) {
  const auto done = std::ranges::find(unscaled_, &optimizer, [](const auto& each) { return each.first; });
  if (done != unscaled_.end()) return done->second;
  const bool is_finite = optimizer.flat_parameters().multiply_gradients(1 / get_scale());
  unscaled_.emplace_back(&optimizer, is_finite);
  return is_finite;
}

bool GradScaler::step(Optimizer& optimizer) {
  if (optimizer.needs_closure())
    throw ArgumentError(
        fmt::format("{} evaluates its loss several times per step: a GradScaler can't be used with it",
                    optimizer.type()));
  if (!unscale(optimizer)) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  const bool overflowed = std::ranges::any_of(unscaled_, [](const auto& each) { return !each.second; });
  unscaled_.clear();
  has_scaled_ = false;
  if (overflowed) {
    scale_ *= static_cast<float>(options_.backoff_factor);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ >= options_.growth_interval) {
    const float larger = scale_ * static_cast<float>(options_.growth_factor);
    if (std::isfinite(larger)) scale_ = larger;
    growth_tracker_ = 0;
  }
}

void GradScaler::load_state(const GradScalerState& state) {
  const auto scale = static_cast<float>(state.scale);
  if (!(scale > 0 && std::isfinite(scale)))
    throw CheckpointError(
        fmt::format("the scale of the gradient scaler is {}: must be positive and finite", state.scale));
  if (state.growth_tracker < 0)
    throw CheckpointError(fmt::format("the growth_tracker of the gradient scaler is {}: must be at least 0",
                                      state.growth_tracker));
  scale_ = scale;
  growth_tracker_ = state.growth_tracker;
}

}  // namespace etude::inline v0
