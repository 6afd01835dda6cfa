#include "etude/optim/clipping.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "etude/libtorch/foreach.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/one_pass.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// True if all are dense float32, float64 or bfloat16 CPU tensors, which need no operator.
bool are_plain(at::TensorList tensors) {
  return uses_cpu_kernels() && std::ranges::all_of(tensors, [](const torch::Tensor& tensor) {
           return tensor.is_cpu() && tensor.layout() == at::kStrided &&
                  tensor.is_non_overlapping_and_dense() &&
                  (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble ||
                   tensor.scalar_type() == at::kBFloat16);
         });
}

/// Copies a number to another device, asynchronously unless that device is the CPU, which would read the
/// number before it has arrived.
torch::Tensor moved_to(torch::Device device, const torch::Tensor& number, at::ScalarType type) {
  return number.to(device, type, /*non_blocking=*/!device.is_cpu());
}

torch::Tensor l2_norm_on_cpu(at::TensorList tensors) {
  double sum = 0;
  bool exact = false;
  const auto add = [&]<class T>(const torch::Tensor& tensor, T) {
    sum += sum_of_squares(tensor.numel(), tensor.data_ptr<T>());
  };
  for (const torch::Tensor& tensor : tensors) {
    exact |= tensor.scalar_type() == at::kDouble;
    if (tensor.scalar_type() == at::kDouble)
      add(tensor, double());
    else if (tensor.scalar_type() == at::kFloat)
      add(tensor, float());
    else
      add(tensor, c10::BFloat16());
  }
  const torch::Tensor norm = at::empty({}, exact ? at::kDouble : at::kFloat);
  if (exact)
    *norm.data_ptr<double>() = std::sqrt(sum);
  else
    *norm.data_ptr<float>() = static_cast<float>(std::sqrt(sum));
  return norm;
}

}  // namespace

}  // namespace detail

torch::Tensor l2_norm(at::TensorList tensors) {
  if (tensors.empty()) return at::zeros({});
  if (detail::are_plain(tensors)) return detail::l2_norm_on_cpu(tensors);
  std::vector<torch::Tensor> norms;
  for (const torch::Tensor& tensor : tensors) {
    const auto type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    norms.push_back(at::linalg_vector_norm(tensor, 2, at::OptionalIntArrayRef{}, false, type));
  }
  if (norms.size() == 1) return norms.front();
  bool exact = false;
  for (const torch::Tensor& norm : norms) exact |= norm.scalar_type() == at::kDouble;
  for (torch::Tensor& norm : norms) {
    norm = detail::moved_to(norms.front().device(), norm, exact ? at::kDouble : at::kFloat);
  }
  return at::linalg_vector_norm(at::stack(norms), 2);
}

double clip_factor(const torch::Tensor& norm, double max_norm) {
  if (max_norm == std::numeric_limits<double>::infinity()) return 1;
  const double value = norm.scalar_type() == at::kDouble  ? *norm.data_ptr<double>()
                       : norm.scalar_type() == at::kFloat ? static_cast<double>(*norm.data_ptr<float>())
                                                          : norm.item<double>();
  const double factor = max_norm / (value + 1e-6);
  return factor > 1 ? 1 : factor;
}

torch::Tensor clip_norm(at::TensorList tensors, double max_norm) {
  const torch::NoGradGuard no_grad;
  torch::Tensor norm = l2_norm(tensors);
  scale_to_norm(tensors, norm, max_norm);
  return norm;
}

void scale_to_norm(at::TensorList tensors, const torch::Tensor& norm, double max_norm) {
  const torch::NoGradGuard no_grad;
  if (max_norm == std::numeric_limits<double>::infinity()) return;
  if (norm.is_cpu() && detail::uses_cpu_kernels()) {
    const double factor = clip_factor(norm, max_norm);
    if (factor == 1) return;
    const auto scale = [factor](auto& value, const auto&) { value = value * factor; };
    for (const auto& tensor : tensors)
      if (!detail::are_plain(tensor) || !detail::one_pass<0>(tensor, tensor, {}, scale)) tensor.mul_(factor);
    return;
  }
  const torch::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1.0);
  for (const auto& tensor : tensors)
    tensor.mul_(detail::moved_to(tensor.device(), factor, factor.scalar_type()));
}

torch::Tensor multiply_and_check(at::TensorList tensors, double factor) {
  const torch::NoGradGuard no_grad;
  torch::Tensor non_finite;
  std::vector<torch::Tensor> left(tensors.begin(), tensors.end());
  while (!left.empty()) {
    const torch::Tensor last = left.back();
    const auto of_one_kind = std::partition(left.begin(), left.end(), [&](const torch::Tensor& tensor) {
      return tensor.device() != last.device() || tensor.scalar_type() != last.scalar_type();
    });
    const torch::Tensor found = libtorch::multiply_and_check_({of_one_kind, left.end()}, factor);
    left.erase(of_one_kind, left.end());
    non_finite = non_finite.defined()
                     ? detail::moved_to(found.device(), non_finite, found.scalar_type()) + found
                     : found;
  }
  return non_finite.defined() ? non_finite : at::zeros({});
}

void clip_value(at::TensorList tensors, double limit) {
  const torch::NoGradGuard no_grad;
  for (const auto& tensor : tensors) tensor.clamp_(-limit, limit);
}

}  // namespace etude::inline v0
