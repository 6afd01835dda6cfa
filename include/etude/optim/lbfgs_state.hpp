#pragma once

#include <ATen/ops/stack.h>
#include <torch/optim/lbfgs.h>
#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>
#include "etude/base/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/parameter_groups.hpp"

/// The state of torch::optim::LBFGS, shared by all parameters, as tensors named `lbfgs.<name>`.
namespace etude::inline v0::detail {

/// Empty before the first step.
NamedTensors lbfgs_state(torch::optim::Optimizer& optimizer);

/// Takes tensors from a saved state and validates each one.
class LbfgsReader {
 public:
  LbfgsReader(const NamedTensors& state, const torch::Tensor& like);

  bool has(const std::string& name) const { return left_.contains("lbfgs." + name); }

  /// The number of rows of a list; 0 if the list is missing.
  std::int64_t rows(const std::string& name) const;

  /// The tensor of that name, without copying it.
  torch::Tensor take(const std::string& name, const std::vector<std::int64_t>& sizes);

  torch::Tensor copy(const std::string& name, const std::vector<std::int64_t>& sizes) {
    return copied(take(name, sizes));
  }

  /// Copies each row, so that its memory is freed when LBFGS drops it.
  std::deque<torch::Tensor> copy_rows(const std::string& name, const std::vector<std::int64_t>& sizes);

  void check_end() const;

 private:
  torch::Tensor copied(const torch::Tensor& tensor) const {
    return tensor.to(like_.options().requires_grad(false), /*non_blocking=*/false, /*copy=*/true);
  }

  std::map<std::string, torch::Tensor> left_;
  torch::Tensor like_;
};

std::int64_t lbfgs_count(const char* what, double value);

/// Throws CheckpointError for an invalid state; nothing is changed in that case.
void load_lbfgs_state(torch::optim::Optimizer& optimizer, const NamedTensors& given);

}  // namespace etude::inline v0::detail
