#include "etude/optim/rules/soap.hpp"

#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/tensordot.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "etude/optim/decompose.hpp"
#include "etude/optim/rules/adam_direction.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// The sizes with which a parameter is preconditioned: `merge_dims` joins adjacent dimensions.
std::vector<std::int64_t> preconditioned_sizes(at::IntArrayRef sizes, const SOAPOptions& options) {
  if (!options.merge_dims || sizes.size() < 2) return sizes.vec();
  std::vector<std::int64_t> result;
  std::int64_t joined = 1;
  for (const std::int64_t size : sizes) {
    if (joined * size <= options.max_precond_dim) {
      joined *= size;
    } else if (joined > 1) {
      result.push_back(joined);
      joined = size;
    } else {
      result.push_back(size);
    }
  }
  if (joined > 1 || result.empty()) result.push_back(joined);
  return result;
}

bool has_eigenvectors(std::int64_t size, std::size_t parameter_dims, const SOAPOptions& options) {
  return size <= options.max_precond_dim && (parameter_dims >= 2 || options.precondition_1d);
}

/// A parameter's preconditioners and their eigenvectors, by dimension; undefined where there are none.
struct Eigenbasis {
  std::vector<torch::Tensor> products, vectors;

  Eigenbasis(at::IntArrayRef sizes, std::size_t parameter_dims, const std::vector<torch::Tensor>& moments,
             const SOAPOptions& options)
      : products(sizes.size()), vectors(sizes.size()) {
    std::size_t next = 2;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (!has_eigenvectors(sizes[i], parameter_dims, options)) continue;
      products[i] = moments[next++];
      vectors[i] = moments[next++];
    }
  }

  /// The coordinates of a tensor in the basis; with `back`, the tensor that has these coordinates.
  torch::Tensor rotated(torch::Tensor tensor, bool back) const {
    // Each product moves the first dimension to the end.
    for (const torch::Tensor& each : vectors)
      tensor = each.defined() ? at::tensordot(tensor, each, {0}, {back ? 1 : 0}) : tensor.movedim(0, -1);
    return tensor.contiguous();
  }

  void add_products(const torch::Tensor& gradient, double decay) const {
    for (std::size_t i = 0; i < products.size(); ++i) {
      if (!products[i].defined()) continue;
      std::vector<std::int64_t> others;
      for (std::int64_t k = 0; k < gradient.dim(); ++k)
        if (k != static_cast<std::int64_t>(i)) others.push_back(k);
      // Rounds as the authors' code does: the eigenvectors of a sum of few products depend on rounding.
      products[i].lerp_(at::tensordot(gradient, gradient, others, others), 1 - decay);
    }
  }

  void compute(const std::string& name) const {
    for (std::size_t i = 0; i < products.size(); ++i) {
      if (!products[i].defined()) continue;
      const auto decomposition =
          decomposed(name, products[i], [](const torch::Tensor& matrix) { return at::linalg_eigh(matrix); });
      vectors[i].copy_(std::get<1>(decomposition).flip(1));
    }
  }

  /// Sorts the vectors by decreasing eigenvalues, and the mean squares with them, and makes one step of the
  /// QR algorithm.
  void improve(const torch::Tensor& square) const {
    torch::Tensor sorted = square;
    for (std::size_t i = 0; i < products.size(); ++i) {
      if (!products[i].defined()) continue;
      const torch::Tensor powers = products[i].mm(vectors[i]);
      const torch::Tensor order = powers.mul(vectors[i]).sum(0).argsort(0, /*descending=*/true);
      sorted = sorted.index_select(static_cast<std::int64_t>(i), order);
      vectors[i].copy_(std::get<0>(at::linalg_qr(powers.index_select(1, order))));
    }
    square.copy_(sorted);
  }
};

}  // namespace

}  // namespace detail

NamedTensors SOAPRule::moments(const torch::Tensor& parameter) const {
  const auto type = parameter.options().dtype(detail::update_type(parameter));
  NamedTensors result{{"exp_avg", at::zeros(parameter.sizes(), type)},
                      {"exp_avg_sq", at::zeros(parameter.sizes(), type)}};
  const auto sizes = detail::preconditioned_sizes(parameter.sizes(), options);
  const auto dims = parameter.sizes().size();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (!detail::has_eigenvectors(sizes[i], dims, options)) continue;
    result.emplace_back(fmt::format("GG_{}", i), at::zeros({sizes[i], sizes[i]}, type));
    result.emplace_back(fmt::format("Q_{}", i), at::zeros({sizes[i], sizes[i]}, type));
  }
  return result;
}

void SOAPRule::update(const std::string& name, const torch::Tensor& values, const torch::Tensor& raw,
                      std::vector<torch::Tensor>& moments, const RuleStep& s) const {
  const auto sizes = detail::preconditioned_sizes(values.sizes(), options);
  const torch::Tensor gradient = raw.reshape(sizes), mean = moments[0].view(sizes),
                      square = moments[1].view(sizes);
  const detail::Eigenbasis basis(sizes, values.sizes().size(), moments, options);
  const double decay = options.shampoo_beta.value_or(options.beta2);
  if (s.step == 1) {
    basis.add_products(gradient, decay);
    return basis.compute(name);
  }
  const std::int64_t step = s.step - 1;
  // The mean is kept in the basis too.
  torch::Tensor update =
      basis.rotated(detail::adam_direction({.beta1 = options.beta1,
                                            .beta2 = options.beta2,
                                            .eps = options.eps,
                                            .correct_bias = options.correct_bias,
                                            .eps_before_correction = true},
                                           basis.rotated(gradient, false), mean, square, step),
                    true);
  if (options.normalize_grads) {
    const auto n = static_cast<double>(step);
    // Normalizing would cancel the bias correction.
    const double correction =
        options.correct_bias ? std::sqrt(1 - std::pow(options.beta2, n)) / (1 - std::pow(options.beta1, n))
                             : 1;
    update.mul_(update.square().mean().sqrt_().add_(1e-30).reciprocal_().mul_(correction));
  }
  values.sub_(update.view(values.sizes()), s.lr);
  if (s.weight_decay != 0) values.mul_(1 - s.lr * s.weight_decay);

  // The new gradient changes the basis only for later steps, as the authors advise.
  basis.add_products(gradient, decay);
  if (step % options.precondition_frequency != 0) return;
  const torch::Tensor before = basis.rotated(mean, true);
  basis.improve(square);
  mean.copy_(basis.rotated(before, false));
}

}  // namespace etude::inline v0
