#pragma once

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "etude/base/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/torch_kinds.hpp"

/// Converts the per-parameter state of LibTorch's optimizers to and from named tensors.
namespace etude::inline v0::detail {

/// Calls `use` with the options cast to their actual type. Throws CheckpointError unless they belong to a
/// LibTorch optimizer with per-parameter state.
template <typename Use>
void with_kind_of_state(torch::optim::OptimizerOptions& options, Use use) {
  bool used = false;
  with_known_options(options, [&]<typename Options>(Options& known) {
    if constexpr (requires { typename TorchKind<Options>::State; }) {
      use(known);
      used = true;
    }
  });
  if (!used) {
    throw CheckpointError(
        "the state of an optimizer that is not LibTorch's own can't be stored; derive from etude::Optimizer");
  }
}

std::vector<std::string> torch_moment_names(torch::optim::OptimizerOptions& options);

/// A parameter's moments, initialized if they don't exist yet.
NamedTensors torch_moments(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                           torch::optim::OptimizerOptions& options);

/// Makes a state with copies of these moments, in the order of their names.
std::unique_ptr<torch::optim::OptimizerParamState> torch_state(const torch::Tensor& parameter,
                                                               torch::optim::OptimizerOptions& options,
                                                               const std::vector<torch::Tensor>& moments,
                                                               std::int64_t steps);

/// The state before the first step: none, except for Adagrad, which requires one.
std::unique_ptr<torch::optim::OptimizerParamState> initial_torch_state(
    const torch::Tensor& parameter, const torch::optim::OptimizerOptions& options);

}  // namespace etude::inline v0::detail
