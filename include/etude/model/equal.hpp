#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/model/model.hpp"

namespace etude::inline v0 {

/// The result of a comparison: true if both are equal.
struct Comparison {
  std::string difference;  ///< describes the first difference; empty if there is none
  explicit operator bool() const { return difference.empty(); }
};

/// True if two tensors have the same dtype, the same shape and the same bits in every element, on any devices
/// and in any memory formats. So NaN equals NaN, and 0 doesn't equal -0. A difference reads "element [0, 3]
/// is 0.5 and 0.25".
Comparison equal(const torch::Tensor& a, const torch::Tensor& b);

/// True if two states have the same names, in any order, and equal tensors.
Comparison equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b);

/// True if both have equal tensors in the same order, with the same names or none.
Comparison equal(const Tensors& a, const Tensors& b);

/// True if the parameters and buffers of two models or modules (see `state_dict`) are equal.
Comparison equal(const Model& a, const Model& b);
Comparison equal(const torch::nn::Module& a, const torch::nn::Module& b);

}  // namespace etude::inline v0
