#pragma once

#include <torch/types.h>

#include <optional>

namespace etude::inline v0 {

/// While it lives, this thread computes the operators of autocast's list in `dtype` on `device`, and those
/// that need the range or precision in float32; without a dtype, all in their own type. What was in force
/// before comes back. The outermost guard forgets the converted weights, so that it must not outlive an
/// update of them. Run the backward pass outside.
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

/// The type that autocast computes in on `device` in this thread, if it is on.
std::optional<torch::ScalarType> autocast_in_force(torch::DeviceType device);

/// Whether this LibTorch computes in float16 on a device.
bool computes_in_float16(torch::DeviceType device);

/// Lets products of float32 on GPUs be rounded to TensorFloat-32, or not, in the whole program.
void allow_tf32(bool allowed);

/// Whether this processor has instructions for products of bfloat16; without them they are slower than
/// float32.
bool cpu_multiplies_bfloat16();

}  // namespace etude::inline v0
