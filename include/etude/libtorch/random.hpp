#pragma once

#include <ATen/Context.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>
#include <mutex>

namespace etude {

/// Seeds the generators of every device.
inline void set_seed(std::uint64_t seed) { torch::manual_seed(seed); }

/// Makes operators give the same results in every run, or throw where they can't.
inline void enable_full_determinism(std::uint64_t seed) {
  set_seed(seed);
  setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

/// Keeps the state of the default generators of the CPU and of `device`, and restores it.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(torch::Device device) : device_(device), cpu_(state_of(torch::kCPU)) {
    if (!device_.is_cpu()) accelerator_ = state_of(device_);
  }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;
  ~RandomStateGuard() {
    set_state(torch::kCPU, cpu_);
    if (!device_.is_cpu()) set_state(device_, accelerator_);
  }

 private:
  static at::Tensor state_of(torch::Device device) {
    auto generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    return generator.get_state();
  }
  static void set_state(torch::Device device, const at::Tensor& state) {
    auto generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }

  torch::Device device_;
  at::Tensor cpu_;
  at::Tensor accelerator_;
};

}  // namespace etude
