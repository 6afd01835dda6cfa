#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <tuple>

namespace etude::inline v0::libtorch {

using MaybeTensor = torch::optional<torch::Tensor>;

/// The operator that every batch norm calls, in modules and in TorchScript. `forward` returns the output, the
/// three tensors that `backward` takes as `mean`, `deviation` and `reserve`, and an index. TorchScript calls
/// `backward` itself; elsewhere, `forward` records the gradient.
struct BatchNormOperator {
  using Forward = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor, torch::Tensor, std::int64_t>(
      const torch::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
      const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
      double eps, bool cudnn_enabled);
  using Backward = std::tuple<torch::Tensor, torch::Tensor, torch::Tensor>(
      std::int64_t index, const torch::Tensor& input, const torch::Tensor& gradient,
      const MaybeTensor& weight, const MaybeTensor& running_mean, const MaybeTensor& running_var,
      const MaybeTensor& mean, const MaybeTensor& deviation, bool training, double eps,
      std::array<bool, 3> needed, const torch::Tensor& reserve);

  Forward* forward;
  Backward* backward;
};

/// LibTorch's implementation.
BatchNormOperator batch_norm_operator();

/// Replaces the operator for tensors on CPU and CUDA devices, for the rest of the process. Call this once.
void replace_batch_norm_operator(const BatchNormOperator& replacement);

}  // namespace etude::inline v0::libtorch
