#include <doctest/doctest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "etude/optim/rules/soap.hpp"

#include "beside_formula.hpp"
#include "common/fault_of.hpp"
#include "etude/base/error.hpp"

namespace optim_soap_test {

/// The matrix that changes the basis of a whole tensor, flattened: the Kronecker product of its
/// dimensions' matrices.
torch::Tensor whole_basis(const std::vector<torch::Tensor>& bases) {
  torch::Tensor result = torch::ones({1, 1}, at::kDouble);
  for (const auto& each : bases) result = torch::kron(result, each.contiguous());
  return result;
}

/// The paper's algorithm 3 on flattened tensors, with the mean of the gradients in the original basis.
auto formula(const etude::SOAPOptions& o) {
  return [o](const torch::Tensor& x, const torch::Tensor& gradient, const beside_formula::Step& s) {
    // The shapes of the test merge to vectors, since their products are below the default limit.
    const std::vector<std::int64_t> sizes =
        o.merge_dims && x.dim() > 1 ? std::vector{x.numel()} : x.sizes().vec();
    const torch::Tensor g = gradient.reshape(sizes);
    const auto dims = sizes.size();
    const auto is_kept = [&](std::size_t i) {
      return sizes[i] <= o.max_precond_dim && (x.dim() > 1 || o.precondition_1d);
    };
    const auto key = [](const char* name, std::size_t i) { return name + std::to_string(i); };
    const auto add_products = [&] {
      const double beta = o.shampoo_beta.value_or(o.beta2);
      for (std::size_t i = 0; i < dims; ++i) {
        if (!is_kept(i)) continue;
        const torch::Tensor rows = g.transpose(0, std::int64_t(i)).reshape({sizes[i], -1});
        torch::Tensor& product = s.zeros(key("product", i), {sizes[i], sizes[i]});
        product = beta * product + (1 - beta) * torch::matmul(rows, rows.t());
      }
    };
    if (s.number == 1) {
      add_products();
      for (std::size_t i = 0; i < dims; ++i)
        s.kept[key("basis", i)] = is_kept(i) ? std::get<1>(at::linalg_eigh(s.kept[key("product", i)])).flip(1)
                                             : torch::eye(sizes[i], at::kDouble);
      return;
    }
    const auto bases = [&] {
      std::vector<torch::Tensor> result;
      for (std::size_t i = 0; i < dims; ++i) result.push_back(s.kept[key("basis", i)]);
      return result;
    };
    const int n = s.number - 1;
    const torch::Tensor flat = g.reshape({-1}), basis = whole_basis(bases());
    torch::Tensor &m = s.zeros("m", flat.sizes()), &v = s.zeros("v", flat.sizes());
    m = o.beta1 * m + (1 - o.beta1) * flat;
    v = o.beta2 * v + (1 - o.beta2) * torch::mv(basis.t(), flat).square();
    torch::Tensor update = torch::mv(basis, torch::mv(basis.t(), m) / (v.sqrt() + o.eps));
    if (o.normalize_grads) update = update / update.square().mean().sqrt();
    double lr = s.lr;
    if (o.correct_bias) lr *= std::sqrt(1 - std::pow(o.beta2, n)) / (1 - std::pow(o.beta1, n));
    x.sub_(lr * update.reshape(x.sizes()));
    x.sub_(s.lr * s.weight_decay * x);
    add_products();
    if (n % o.precondition_frequency != 0) return;
    torch::Tensor squares = v.reshape(sizes);
    for (std::size_t i = 0; i < dims; ++i) {
      if (!is_kept(i)) continue;
      torch::Tensor &product = s.kept[key("product", i)], &old = s.kept[key("basis", i)];
      const torch::Tensor order =
          torch::matmul(torch::matmul(old.t(), product), old).diagonal().argsort(0, true);
      squares = squares.index_select(std::int64_t(i), order);
      old = std::get<0>(at::linalg_qr(torch::matmul(product, old.index_select(1, order))));
    }
    v = squares.reshape({-1});
  };
}

double after_200_steps(const etude::SOAPOptions& options) {
  return beside_formula::after_200_steps<etude::SOAP>(options, formula(options));
}

TEST_CASE("SOAP equals the paper's formula over 200 steps, group by group") {
  CHECK(after_200_steps({.lr = 0.01}) <= 1e-8);
  CHECK(after_200_steps({.lr = 0.01,
                         .beta1 = 0.9,
                         .beta2 = 0.99,
                         .shampoo_beta = 0.8,
                         .eps = 0.1,
                         .precondition_frequency = 3}) <= 1e-8);
  CHECK(after_200_steps({.lr = 0.01, .max_precond_dim = 5, .normalize_grads = true}) <= 1e-8);
  // A QR step needs products of full rank, for which vectors need many gradients.
  CHECK(after_200_steps({.lr = 0.01, .precondition_frequency = 60, .precondition_1d = true}) <= 1e-8);
  CHECK(after_200_steps(
            {.lr = 0.01, .precondition_frequency = 60, .merge_dims = true, .correct_bias = false}) <= 1e-8);
}

TEST_CASE("SOAP's second step is the sign of the gradient in the eigenbasis of the first") {
  // The eigenvectors of a diagonal gradient are those of the identity.
  const torch::Tensor x = torch::zeros({2, 2}, at::kDouble).set_requires_grad(true);
  etude::SOAP soap({{{{"x", x}}, {}, {}}}, {.lr = 0.5, .eps = 0, .weight_decay = 0});
  x.mutable_grad() = torch::tensor({2.0, 1.0}, at::kDouble).diag();
  soap.step();
  CHECK(x.equal(torch::zeros({2, 2}, at::kDouble)));
  x.mutable_grad() = torch::tensor({{3.0, -4.0}, {5.0, -6.0}}, at::kDouble);
  soap.step();
  CHECK(torch::allclose(x, torch::tensor({{-0.5, 0.5}, {-0.5, 0.5}}, at::kDouble)));
}

TEST_CASE("SOAP keeps two matrices for each dimension up to max_precond_dim, merged if asked") {
  const torch::Tensor x = torch::ones({4, 3, 2}).set_requires_grad(true);
  const auto sizes = [&](const etude::SOAPOptions& options) {
    etude::SOAP soap({{{{"x", x}}, {}, {}}}, options);
    x.mutable_grad() = torch::rand({4, 3, 2});
    soap.step();
    std::string result;
    for (const auto& [name, tensor] : soap.state())
      if (name.starts_with("x.Q")) result += name + " " + std::to_string(tensor.size(0)) + " ";
    return result;
  };
  CHECK(sizes({}) == "x.Q_0 4 x.Q_1 3 x.Q_2 2 ");
  CHECK(sizes({.max_precond_dim = 3}) == "x.Q_1 3 x.Q_2 2 ");
  CHECK(sizes({.max_precond_dim = 12, .merge_dims = true}) == "x.Q_0 12 x.Q_1 2 ");
  CHECK(sizes({.max_precond_dim = 6, .merge_dims = true}) == "x.Q_0 4 x.Q_1 6 ");
}

TEST_CASE("SOAP names a parameter whose first gradient isn't finite") {
  const torch::Tensor x = torch::ones({4, 4}).set_requires_grad(true);
  etude::SOAP soap({{{{"layer.weight", x}}, {}, {}}});
  x.mutable_grad() = torch::full({4, 4}, std::numeric_limits<float>::quiet_NaN());
  CHECK(toy::fault_of<etude::Error>([&] {
          soap.step();
        }).starts_with("the gradient of parameter 'layer.weight' can't be decomposed"));
}

TEST_CASE("SOAP resumes bit for bit and updates bfloat16 in float32") {
  CHECK(beside_formula::resumes_to_the_bit<etude::SOAP>(at::kFloat, etude::SOAPOptions{}));
  CHECK(beside_formula::updates_halves_in_float32<etude::SOAP>(etude::SOAPOptions{.lr = 0.1}));
}

}  // namespace optim_soap_test
