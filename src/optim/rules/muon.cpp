#include "etude/optim/rules/muon.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/blas.hpp"
#include "etude/optim/name_patterns.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/adam_direction.hpp"
#include "etude/optim/update_tensor.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// Nearly the orthogonal matrix U V^T for the matrix U S V^T, or its multiple with singular values of about
/// 0.7 to 1.2, as in torch.optim.Muon.
torch::Tensor orthogonalized(const torch::Tensor& matrix, const MuonOptions& options) {
  const bool in_bfloat16 = options.ns_dtype == NewtonSchulzDtype::automatic
                               ? matrix.scalar_type() != at::kDouble && has_fast_bfloat16(matrix.device())
                               : options.ns_dtype == NewtonSchulzDtype::bfloat16;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  torch::Tensor x = in_bfloat16 ? matrix.to(at::kBFloat16) : matrix;
  if (is_tall) x = x.t();
  x = x.div(x.norm().clamp_min(options.eps));
  const double a = options.ns_coefficients[0], b = options.ns_coefficients[1], c = options.ns_coefficients[2];
  for (std::int64_t i = 0; i < options.ns_steps; ++i) {
    const torch::Tensor gram = x.mm(x.t());
    x = x.addmm(gram.addmm(gram, gram, b, c), x, a);
  }
  return is_tall ? x.t() : x;
}

double adjusted_lr(double lr, AdjustLr how, const torch::Tensor& matrix) {
  const auto rows = static_cast<double>(matrix.size(0)), columns = static_cast<double>(matrix.size(1));
  switch (how) {
    case AdjustLr::original:
      return lr * std::sqrt(std::max(1.0, rows / columns));
    case AdjustLr::match_rms_adamw:
      return lr * 0.2 * std::sqrt(std::max(rows, columns));
    case AdjustLr::none:
      break;
  }
  return lr;
}

}  // namespace

}  // namespace detail

void MuonRule::check(const Options& options, const std::vector<ParameterGroup>& groups) {
  if (options.ns_coefficients.size() != 3)
    throw ArgumentError(
        fmt::format("ns_coefficients has {} numbers: must have 3", options.ns_coefficients.size()));
  if (options.adamw_modules != Options().adamw_modules)
    detail::check_name_patterns("adamw_modules", options.adamw_modules, groups);
}

NamedTensors MuonRule::moments(const std::string& name, const torch::Tensor& parameter) const {
  if (parameter.dim() < 2 || detail::any_pattern_names(options.adamw_modules, name))
    return detail::zeros_for(parameter, {"exp_avg", "exp_avg_sq"});
  return detail::zeros_for(parameter, {"momentum_buffer"});
}

void MuonRule::update(const torch::Tensor& values, const torch::Tensor& gradient,
                      std::vector<torch::Tensor>& moments, const RuleStep& s) const {
  if (moments.size() == 2) {
    const AdamWOptions adamw{
        .beta1 = options.adamw_beta1, .beta2 = options.adamw_beta2, .eps = options.adamw_eps};
    return detail::update_tensor(AdamWRule{adamw}, values, gradient, moments,
                                 {s.lr * options.adamw_lr_factor, s.weight_decay, s.step});
  }
  const torch::Tensor& mean = moments[0].lerp_(gradient, 1 - options.momentum);
  const torch::Tensor direction = options.nesterov ? gradient.lerp(mean, options.momentum) : mean;
  const torch::Tensor update = detail::orthogonalized(direction.flatten(1), options);
  if (s.weight_decay != 0) values.mul_(1 - s.lr * s.weight_decay);
  values.add_(update.reshape(values.sizes()), -detail::adjusted_lr(s.lr, options.adjust_lr_fn, update));
}

}  // namespace etude::inline v0
