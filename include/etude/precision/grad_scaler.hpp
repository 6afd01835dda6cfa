#pragma once

#include <torch/types.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "etude/optim/optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct GradScalerOptions {
  ETUDE_STRUCT(GradScalerOptions, (double, init_scale, "the first scale" | above(0), 65536.0),
               (double, growth_factor, "factor after growth_interval updates without overflow" | above(1),
                2.0),
               (double, backoff_factor, "factor after an overflow" | above(0).below(1), 0.5),
               (std::int64_t, growth_interval,
                "updates without overflow before the scale grows" | at_least(1), 2000));
};

/// The state of a GradScaler in a checkpoint.
struct GradScalerState {
  ETUDE_STRUCT(GradScalerState, (double, scale, "factor of the losses", 1.0),
               (std::int64_t, growth_tracker, "updates without overflow since it changed", 0));
};

/// Multiplies losses by a scale so that small gradients don't vanish in float16, divides the gradients by it
/// again, and skips updates whose gradients have overflowed. The scale shrinks after an overflow and grows
/// after `growth_interval` updates without one, as torch.amp.GradScaler's does, bit for bit. For each update:
///
///     scaler.scale(loss).backward();
///     if (scaler.unscale(optimizer)) optimizer.clip_grad_norm(1);
///     scaler.step(optimizer);
///     scaler.update();
///
/// With several optimizers, each is skipped for its own gradients only.
class GradScaler {
 public:
  /// Throws ArgumentError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale.
  torch::Tensor scale(const torch::Tensor& loss);

  /// Divides the gradients by the scale, once per update, and returns whether all of them are finite. Waits
  /// for the device.
  bool unscale(Optimizer& optimizer);

  /// Unscales the gradients unless that is done, and steps if they are finite; returns whether it did.
  /// Throws ArgumentError for an optimizer that needs a closure.
  bool step(Optimizer& optimizer);

  /// Ends an update, and computes the scale of the next one.
  void update();

  /// Whether a loss was scaled since the last update.
  bool has_scaled() const { return has_scaled_; }

  double get_scale() const { return static_cast<double>(scale_); }

  GradScalerState state() const { return {get_scale(), growth_tracker_}; }
  /// Throws CheckpointError, and changes nothing, for a scale that isn't positive and finite or a negative
  /// number of updates.
  void load_state(const GradScalerState& state);

 private:
  GradScalerOptions options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  bool has_scaled_ = false;
  std::vector<std::pair<const Optimizer*, bool>> unscaled_;  // in this update, with whether all are finite
};

}  // namespace etude::inline v0
