#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "etude/optim/parameter_optimizer.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

struct SOAPOptions {
  ETUDE_STRUCT(SOAPOptions, (double, lr, "learning rate" | at_least(0), 3e-3),
               (double, beta1, "decay of the mean of the gradients" | at_least(0).below(1), 0.95),
               (double, beta2, "decay of the mean of their squares" | at_least(0).below(1), 0.95),
               (std::optional<double>, shampoo_beta,
                "decay of the mean of their products; unset uses beta2" | at_least(0).below(1)),
               (double, eps, "added to the denominator" | at_least(0), 1e-8),
               (double, weight_decay, "decoupled weight decay" | at_least(0), 1e-2),
               (std::int64_t, precondition_frequency, "steps between new eigenvectors" | at_least(1), 10),
               (std::int64_t, max_precond_dim, "largest dimension that has eigenvectors" | at_least(1),
                10'000),
               (bool, merge_dims, "join dimensions while their product is at most max_precond_dim", false),
               (bool, precondition_1d, "compute eigenvectors for vectors too", false),
               (bool, normalize_grads, "divide updates by their root mean square", false),
               (bool, correct_bias, "correct the bias of the means", true));
};

/// SOAP (Vyas et al. 2024, arXiv:2409.11321), equivalent to the authors' code: Adam in the basis of the
/// eigenvectors of Shampoo's preconditioners, the mean products of the gradient's rows and of its columns (in
/// general, one for each dimension). A dimension above max_precond_dim keeps its basis. The first step of a
/// parameter only computes eigenvectors. Later, one step of the QR algorithm updates them every
/// precondition_frequency steps.
struct SOAPRule {
  using Options = SOAPOptions;

  NamedTensors moments(const torch::Tensor& parameter) const;

  /// Throws Error if the first gradient of a parameter isn't finite.
  void update(const std::string& name, const torch::Tensor& values, const torch::Tensor& gradient,
              std::vector<torch::Tensor>& moments, const RuleStep& s) const;

  Options options;
};

using SOAP = ParameterRuleOptimizer<SOAPRule>;

}  // namespace etude::inline v0
