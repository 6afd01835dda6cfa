#include <doctest/doctest.h>
#include <torch/types.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "etude/optim/rules/muon.hpp"

#include "beside_formula.hpp"
#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/libtorch/blas.hpp"
#include "etude/optim/create.hpp"
#include "etude/training_arguments.hpp"

namespace optim_muon_test {

/// AdamW and the formulas of Muon's author, with the polynomial a s + b s^3 + c s^5 applied to the singular
/// values s.
auto formula(const etude::MuonOptions& o) {
  return [o](const torch::Tensor& x, const torch::Tensor& g, const beside_formula::Step& s) {
    if (x.dim() < 2) {
      const double lr = s.lr * o.adamw_lr_factor;
      torch::Tensor &m = s.zeros("m", x.sizes()), &v = s.zeros("v", x.sizes());
      m = o.adamw_beta1 * m + (1 - o.adamw_beta1) * g;
      v = o.adamw_beta2 * v + (1 - o.adamw_beta2) * g * g;
      const torch::Tensor mean = m / (1 - std::pow(o.adamw_beta1, s.number)),
                          square = v / (1 - std::pow(o.adamw_beta2, s.number));
      x.sub_(lr * s.weight_decay * x).sub_(lr * mean / (square.sqrt() + o.adamw_eps));
      return;
    }
    torch::Tensor& b = s.zeros("b", x.sizes());
    b = o.momentum * b + (1 - o.momentum) * g;
    const torch::Tensor direction =
        (o.nesterov ? o.momentum * b + (1 - o.momentum) * g : b).reshape({x.size(0), -1});
    auto [u, values, vh] = at::linalg_svd(direction / direction.norm(), false);
    for (int i = 0; i < o.ns_steps; ++i)
      values = o.ns_coefficients[0] * values + o.ns_coefficients[1] * values.pow(3) +
               o.ns_coefficients[2] * values.pow(5);
    const torch::Tensor update = u.mm(values.diag()).mm(vh);
    const double rows = double(update.size(0)), columns = double(update.size(1));
    double factor = 1;
    if (o.adjust_lr_fn == etude::AdjustLr::original) factor = std::sqrt(std::max(1.0, rows / columns));
    if (o.adjust_lr_fn == etude::AdjustLr::match_rms_adamw) factor = 0.2 * std::sqrt(std::max(rows, columns));
    x.sub_(s.lr * s.weight_decay * x).sub_(s.lr * factor * update.reshape(x.sizes()));
  };
}

double after_200_steps(const etude::MuonOptions& options) {
  return beside_formula::after_200_steps<etude::Muon>(options, formula(options));
}

TEST_CASE("Muon equals its formula on singular values over 200 steps, and AdamW for biases and norms") {
  CHECK(after_200_steps({.lr = 0.01}) <= 1e-9);
  CHECK(after_200_steps({.lr = 0.01, .adamw_lr_factor = 0.3, .adamw_beta1 = 0.8, .adamw_beta2 = 0.9}) <=
        1e-9);
  CHECK(after_200_steps({.lr = 0.01, .momentum = 0.5, .nesterov = false, .ns_steps = 3}) <= 1e-9);
  CHECK(after_200_steps({.lr = 0.01, .adjust_lr_fn = etude::AdjustLr::match_rms_adamw}) <= 1e-9);
  CHECK(after_200_steps(
            {.lr = 0.01, .ns_coefficients = {2, -1.5, 0.5}, .adjust_lr_fn = etude::AdjustLr::none}) <= 1e-9);
}

/// The singular values of the first update of a matrix, divided by lr.
torch::Tensor singular_values(at::IntArrayRef sizes, const etude::MuonOptions& options) {
  torch::manual_seed(5);
  const torch::Tensor x = torch::zeros(sizes).set_requires_grad(true);
  etude::Muon muon({{{{"x", x}}, {}, {}}}, options);
  x.mutable_grad() = torch::randn(sizes);
  muon.step();
  return std::get<1>(at::linalg_svd(x.detach().flatten(1), false)) / options.lr;
}

TEST_CASE("Muon's updates have singular values near 1 in both dtypes, and convolutions are matrices") {
  using enum etude::NewtonSchulzDtype;
  for (const auto dtype : {automatic, bfloat16, full})
    for (const auto& sizes : {std::vector<std::int64_t>{20, 40}, {40, 20}, {16, 6, 3, 3}}) {
      const torch::Tensor values =
          singular_values(sizes, {.lr = 0.5, .adjust_lr_fn = etude::AdjustLr::none, .ns_dtype = dtype});
      CHECK(values.min().item<double>() > 0.6);
      CHECK(values.max().item<double>() < 1.3);
    }
  // These coefficients converge to 1.
  const torch::Tensor exact = singular_values(
      {8, 8}, {.lr = 0.5, .ns_coefficients = {1.875, -1.25, 0.375}, .ns_steps = 40, .ns_dtype = full});
  CHECK(torch::allclose(exact, torch::ones({8}), 0, 1e-4));
  // By default, the faster one.
  const bool in_bfloat16 = etude::has_fast_bfloat16(at::kCPU);
  CHECK(singular_values({20, 40}, {})
            .equal(singular_values({20, 40}, {.ns_dtype = in_bfloat16 ? bfloat16 : full})));
  CHECK_FALSE(
      singular_values({20, 40}, {.ns_dtype = bfloat16}).equal(singular_values({20, 40}, {.ns_dtype = full})));
}

TEST_CASE("Muon leaves embeddings, output layers and named modules to AdamW") {
  etude::NamedTensors parameters;
  for (const char* name : {"embed_tokens.weight", "layers.0.up.weight", "layers.0.gate.weight",
                           "layers.0.up.bias", "lm_head.weight", "transformer.wte.weight"})
    parameters.emplace_back(name, torch::ones({3, 3}).set_requires_grad(true));
  const auto updated_by_muon = [&](const etude::MuonOptions& options) {
    etude::Muon muon({{parameters, {}, {}}}, options);
    for (auto& [name, tensor] : parameters) tensor.mutable_grad() = torch::ones({3, 3});
    muon.step();
    std::string names;
    for (const auto& [name, tensor] : muon.state())
      if (name.ends_with(".momentum_buffer")) names += name.substr(0, name.rfind('.')) + " ";
    return names;
  };
  CHECK(updated_by_muon({}) == "layers.0.up.weight layers.0.gate.weight layers.0.up.bias ");
  CHECK(updated_by_muon({.adamw_modules = " layers.0.up  *head *e*d*"}) ==
        "layers.0.gate.weight transformer.wte.weight ");
  CHECK(updated_by_muon({.adamw_modules = "*"}).empty());
  CHECK(
      toy::fault_of<etude::ArgumentError>([&] {
        updated_by_muon({.adamw_modules = "*head layers.1"});
      }).starts_with("adamw_modules has the pattern 'layers.1': must name a parameter or module, such as "));
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          updated_by_muon({.ns_coefficients = {1, 2}});
        }) == "ns_coefficients has 2 numbers: must have 3");
}

TEST_CASE("optim_args sets Muon's options, and adam_beta1, adam_beta2 and adam_epsilon are AdamW's") {
  etude::TrainingArguments args;
  args.optim = etude::OptimizerNames::muon;
  args.adam_beta2 = 0.98;
  args.adam_epsilon = 1e-6;
  args.optim_args = "adamw_modules=head embed*, adjust_lr_fn=match_rms_adamw, adamw_beta1=0.5, ns_steps=4";
  const etude::NamedTensors parameters{{"head.weight", torch::ones({2, 2}).set_requires_grad(true)},
                                       {"embed.weight", torch::ones({2, 2}).set_requires_grad(true)}};
  const auto optimizer = etude::make_optimizer(args, {{parameters, {}, {}}});
  const auto state = optimizer->options_state();
  const auto& given = state["given"][0];
  CHECK(state["type"] == "Muon");
  CHECK(given["adamw_beta1"] == 0.5);
  CHECK(given["adamw_beta2"] == 0.98);
  CHECK(given["adamw_eps"] == 1e-6);
  CHECK(given["adjust_lr_fn"] == "match_rms_adamw");
  CHECK(given["ns_steps"] == 4);
}

TEST_CASE("a group's momentum replaces Muon's") {
  const auto after = [](double own, std::optional<double> of_group) {
    torch::manual_seed(2);
    const torch::Tensor x = torch::ones({4, 3}).set_requires_grad(true);
    etude::Muon muon({{{{"x", x}}, {}, {}}}, {.momentum = own});
    muon.param_groups()[0].momentum = of_group;
    for (int step = 0; step < 3; ++step) {
      x.mutable_grad() = torch::randn({4, 3});
      muon.step();
    }
    return x.detach();
  };
  CHECK(after(0.9, 0.5).equal(after(0.5, {})));
  CHECK_FALSE(after(0.9, {}).equal(after(0.5, {})));
}

TEST_CASE("a gradient of zeros doesn't change what Muon updates") {
  const torch::Tensor x = torch::ones({3, 4}).set_requires_grad(true);
  etude::Muon muon({{{{"x", x}}, {}, {}}}, {.weight_decay = 0});
  x.mutable_grad() = torch::zeros({3, 4});
  muon.step();
  CHECK(x.equal(torch::ones({3, 4})));
}

TEST_CASE("Muon resumes bit for bit and updates bfloat16 in float32") {
  CHECK(beside_formula::resumes_to_the_bit<etude::Muon>(at::kFloat, etude::MuonOptions{}));
  CHECK(beside_formula::updates_halves_in_float32<etude::Muon>(etude::MuonOptions{.lr = 0.1}));
}

}  // namespace optim_muon_test
