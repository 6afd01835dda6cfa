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
  std::string difference;  ///< the first one; empty if there is none
  explicit operator bool() const { return difference.empty(); }
};

/// Whether two tensors have the same dtype, the same shape and the same bits in every element, on whatever
/// device and in whatever memory format. So NaN equals NaN, and 0 doesn't equal -0. The difference is such as
/// "element [0, 3] is 0.5 and 0.25".
Comparison equal(const torch::Tensor& a, const torch::Tensor& b);

/// Whether two states have the same names, in any order, with equal tensors.
Comparison equal(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b);

/// Whether both have equal tensors with the same names, or none, in the same order.
Comparison equal(const Tensors& a, const Tensors& b);

/// Whether the parameters and buffers of two models or modules are equal: see `state_dict`.
Comparison equal(const Model& a, const Model& b);
Comparison equal(const torch::nn::Module& a, const torch::nn::Module& b);

}  // namespace etude::inline v0
