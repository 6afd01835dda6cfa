#pragma once

#include <torch/types.h>

#include <optional>

namespace etude::inline v0 {

/// While it lives, autocast in this thread runs the operators on its list in `dtype` on `device`, and
/// operators that need the range or precision in float32; without a dtype, autocast is off. The destructor
/// restores the previous setting. Converted weights are cached until the outermost guard ends, so the guard
/// must not outlive an update of the weights. Run the backward pass outside it.
class AutocastGuard {
 public:
  AutocastGuard(torch::DeviceType device, std::optional<torch::ScalarType> dtype);
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
  ~AutocastGuard();

 private:
  torch::DeviceType device_;
  bool was_enabled_;
  torch::ScalarType dtype_before_;
};

/// The dtype of autocast on `device` in this thread, if autocast is on.
std::optional<torch::ScalarType> autocast_in_force(torch::DeviceType device);

/// Whether this LibTorch computes in float16 on a device.
bool computes_in_float16(torch::DeviceType device);

/// Sets, for the whole program, whether float32 products on GPUs may be rounded to TensorFloat-32.
void allow_tf32(bool allowed);

/// Whether this processor has instructions for bfloat16 products; without them, these are slower than
/// float32.
bool cpu_multiplies_bfloat16();

}  // namespace etude::inline v0
