#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// Lock this while you seed the default generators and draw from them, if other threads may do the same.
/// `set_seed` and `set_generator_state` lock it too.
std::recursive_mutex& default_generators_mutex();

/// Seeds the generators of all devices.
void set_seed(std::uint64_t seed);

/// Makes operators give the same results in every run, or throw if they can't.
void enable_full_determinism(std::uint64_t seed);

/// Gets or sets a generator's state, a byte tensor. Setting an invalid state throws c10::Error.
at::Tensor generator_state(at::Generator generator);
void set_generator_state(at::Generator generator, const at::Tensor& state);

/// The default generators of the CPU ("cpu") and of every CUDA device ("cuda:0").
std::vector<std::pair<std::string, at::Generator>> default_generators();

/// The state of the default generators of the CPU and of `device` when this is constructed.
class DefaultRandomState {
 public:
  explicit DefaultRandomState(torch::Device device);
  void restore() const;
  torch::Device device() const { return device_; }

 private:
  torch::Device device_;
  at::Tensor cpu_;
  at::Tensor accelerator_;
};

/// Restores that state on destruction.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(torch::Device device) : before_(device) {}
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;
  ~RandomStateGuard() { before_.restore(); }

 private:
  DefaultRandomState before_;
};

}  // namespace etude::inline v0
