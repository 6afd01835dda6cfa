#pragma once

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace etude::inline v0 {

/// Seeds the generators of all devices.
void set_seed(std::uint64_t seed);

/// Makes operators give the same results in every run, or throw if they can't.
void enable_full_determinism(std::uint64_t seed);

/// Gets the state of a generator, a byte tensor; the second sets it. Throws c10::Error for an invalid state.
at::Tensor generator_state(at::Generator generator);
void set_generator_state(at::Generator generator, const at::Tensor& state);

/// The default generators of the CPU ("cpu") and of every CUDA device ("cuda:0").
std::vector<std::pair<std::string, at::Generator>> default_generators();

/// Saves the state of the default generators of the CPU and of `device`, and restores it on destruction.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(torch::Device device);
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;
  ~RandomStateGuard();

 private:
  torch::Device device_;
  at::Tensor cpu_;
  at::Tensor accelerator_;
};

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/libtorch/impl/generators.ipp"
#endif
