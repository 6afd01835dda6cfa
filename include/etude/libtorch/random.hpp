#pragma once

#include <ATen/Context.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

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

/// The state of a generator, a byte tensor; and back. Throws c10::Error for one that doesn't fit.
inline at::Tensor generator_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}
inline void set_generator_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

/// The default generators of the CPU ("cpu") and of every CUDA device ("cuda:0").
inline std::vector<std::pair<std::string, at::Generator>> default_generators() {
  auto& context = at::globalContext();
  std::vector<std::pair<std::string, at::Generator>> result{{"cpu", context.defaultGenerator(torch::kCPU)}};
  for (int i = 0, count = static_cast<int>(torch::cuda::device_count()); i < count; ++i) {
    const torch::Device device(torch::kCUDA, static_cast<c10::DeviceIndex>(i));
    result.emplace_back(device.str(), context.defaultGenerator(device));
  }
  return result;
}

/// Keeps the state of the default generators of the CPU and of `device`, and restores it.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(torch::Device device)
      : device_(device), cpu_(generator_state(at::globalContext().defaultGenerator(torch::kCPU))) {
    if (!device_.is_cpu()) accelerator_ = generator_state(at::globalContext().defaultGenerator(device_));
  }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;
  ~RandomStateGuard() {
    set_generator_state(at::globalContext().defaultGenerator(torch::kCPU), cpu_);
    if (!device_.is_cpu()) set_generator_state(at::globalContext().defaultGenerator(device_), accelerator_);
  }

 private:
  torch::Device device_;
  at::Tensor cpu_;
  at::Tensor accelerator_;
};

}  // namespace etude
