#pragma once

#include <torch/types.h>

#include <cstdint>
#include <initializer_list>
#include <string>

#include "etude/optim/parameter_groups.hpp"

/// The part of Adam that optimizers of whole parameters use too.
namespace etude::inline v0::detail {

struct AdamDirection {
  double beta1, beta2, eps;
  bool correct_bias = true;
  /// Adds eps to the root of the mean of squares before the bias correction, as Hugging Face's former AdamW
  /// did, instead of after it as torch does.
  bool eps_before_correction = false;
};

/// Updates Adam's two moments and returns mean / (sqrt(mean of squares) + eps). All are float32 or float64.
torch::Tensor adam_direction(const AdamDirection& of, const torch::Tensor& gradient,
                             const torch::Tensor& mean, const torch::Tensor& square, std::int64_t step);

/// Moments of the shape and memory order of a parameter and of the dtype of its updates.
NamedTensors zeros_for(const torch::Tensor& parameter, std::initializer_list<std::string> names);

}  // namespace etude::inline v0::detail
