#include "etude/libtorch/autocast.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/types.h>
#include <torch/version.h>

#include <optional>

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

namespace etude::inline v0 {
namespace libtorch {

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
namespace {

bool autocast_enabled(torch::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
torch::ScalarType autocast_dtype(torch::DeviceType device) {
  return at::autocast::get_autocast_dtype(device);
}
void set_autocast(torch::DeviceType device, bool enabled, torch::ScalarType dtype) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
}

}  // namespace

#else
namespace {

bool autocast_enabled(torch::DeviceType device) {
  return device == torch::kCUDA ? at::autocast::is_enabled() : at::autocast::is_cpu_enabled();
}
torch::ScalarType autocast_dtype(torch::DeviceType device) {
  return device == torch::kCUDA ? at::autocast::get_autocast_gpu_dtype()
                                : at::autocast::get_autocast_cpu_dtype();
}
void set_autocast(torch::DeviceType device, bool enabled, torch::ScalarType dtype) {
  if (device == torch::kCUDA) {
    at::autocast::set_enabled(enabled);
    at::autocast::set_autocast_gpu_dtype(dtype);
  } else {
    at::autocast::set_cpu_enabled(enabled);
    at::autocast::set_autocast_cpu_dtype(dtype);
  }
}

}  // namespace

#endif

}  // namespace libtorch

AutocastGuard::AutocastGuard(torch::DeviceType device, std::optional<torch::ScalarType> dtype)
    : device_(device),
      was_enabled_(libtorch::autocast_enabled(device)),
      dtype_before_(libtorch::autocast_dtype(device)) {
  libtorch::set_autocast(device, dtype.has_value(), dtype.value_or(dtype_before_));
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  libtorch::set_autocast(device_, was_enabled_, dtype_before_);
}

std::optional<torch::ScalarType> autocast_in_force(torch::DeviceType device) {
  return libtorch::autocast_enabled(device) ? std::optional(libtorch::autocast_dtype(device)) : std::nullopt;
}

bool computes_in_float16(torch::DeviceType device) {
  return device != torch::kCPU || TORCH_VERSION_MAJOR > 2 ||
         (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3);
}

void allow_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

bool cpu_multiplies_bfloat16() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16") != 0;
#elif defined(__aarch64__) && defined(HWCAP2_BF16)
  return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#else
  return false;
#endif
}

}  // namespace etude::inline v0
