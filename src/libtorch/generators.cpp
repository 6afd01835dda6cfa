#include "etude/libtorch/generators.hpp"

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

namespace etude::inline v0 {

std::recursive_mutex& default_generators_mutex() {
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  return mutex;
}

void set_seed(std::uint64_t seed) {
  const std::lock_guard in_use(default_generators_mutex());
  torch::manual_seed(seed);
}

void enable_full_determinism(std::uint64_t seed) {
  set_seed(seed);
  setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
}

at::Tensor generator_state(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard in_use(default_generators_mutex());
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

std::vector<std::pair<std::string, at::Generator>> default_generators() {
  auto& context = at::globalContext();
  std::vector<std::pair<std::string, at::Generator>> result{{"cpu", context.defaultGenerator(torch::kCPU)}};
  for (int i = 0, count = static_cast<int>(torch::cuda::device_count()); i < count; ++i) {
    const torch::Device device(torch::kCUDA, static_cast<c10::DeviceIndex>(i));
    result.emplace_back(device.str(), context.defaultGenerator(device));
  }
  return result;
}

DefaultRandomState::DefaultRandomState(torch::Device device)
    : device_(device), cpu_(generator_state(at::globalContext().defaultGenerator(torch::kCPU))) {
  if (!device_.is_cpu()) accelerator_ = generator_state(at::globalContext().defaultGenerator(device_));
}

void DefaultRandomState::restore() const {
  set_generator_state(at::globalContext().defaultGenerator(torch::kCPU), cpu_);
  if (!device_.is_cpu()) set_generator_state(at::globalContext().defaultGenerator(device_), accelerator_);
}

}  // namespace etude::inline v0
