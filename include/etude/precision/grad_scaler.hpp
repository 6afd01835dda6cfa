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

/// Multiplies losses by a scale, so that small gradients don't underflow in float16, divides the gradients by
/// it, and skips updates whose gradients have overflowed. The scale shrinks after an overflow and grows after
/// `growth_interval` updates without one, bit for bit as in torch.amp.GradScaler. For each update:
///
///     scaler.scale(loss).backward();
///     if (scaler.unscale(optimizer)) optimizer.clip_grad_norm(1);
///     scaler.step(optimizer);
///     scaler.update();
///
/// With several optimizers, each one's step depends only on its gradients.
class GradScaler {
 public:
  /// Throws ArgumentError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale.
  torch::Tensor scale(const torch::Tensor& loss);

  /// Divides the gradients by the scale, once per update. Returns true if all of them are finite. Waits for
  /// the device.
  bool unscale(Optimizer& optimizer);

  /// Unscales the gradients unless that has been done, and steps if they are finite. Returns true if it
  /// stepped. Throws ArgumentError for an optimizer that needs a closure.
  bool step(Optimizer& optimizer);

  /// Ends an update, and computes the scale of the next one.
  void update();

  /// True if a loss has been scaled since the last update.
  bool has_scaled() const { return has_scaled_; }

  double get_scale() const { return static_cast<double>(scale_); }

  GradScalerState state() const { return {get_scale(), growth_tracker_}; }
  /// Throws CheckpointError, and changes nothing, if the scale isn't positive and finite or the number of
  /// updates is negative.
  void load_state(const GradScalerState& state);

 private:
  GradScalerOptions options_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  bool has_scaled_ = false;
  std::vector<std::pair<const Optimizer*, bool>> unscaled_;  // this update: true if gradients are finite
};

}  // namespace etude::inline v0
