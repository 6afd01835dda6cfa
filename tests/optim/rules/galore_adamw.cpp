#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "etude/optim/rules/galore_adamw.hpp"

#include "beside_formula.hpp"
#include "common/fault_of.hpp"
#include "etude/base/error.hpp"
#include "etude/optim/rules/adam.hpp"

namespace optim_galore_adamw_test {

/// The paper's algorithm 2, and AdamW, as in the authors' code.
auto formula(const etude::GaLoreAdamWOptions& o) {
  return [o](const torch::Tensor& x, const torch::Tensor& g, const beside_formula::Step& s) {
    const bool is_projected = x.dim() == 2 && std::min(x.size(0), x.size(1)) >= o.rank;
    torch::Tensor reduced = g;
    if (is_projected) {
      if ((s.number - 1) % int(o.update_proj_gap) == 0) {
        const auto [u, values, vh] = at::linalg_svd(g, false);
        s.kept["u"] = u.slice(1, 0, o.rank).clone();
        s.kept["vh"] = vh.slice(0, 0, o.rank).clone();
      }
      using enum etude::ProjType;
      const bool is_tall = x.size(0) >= x.size(1);
      const bool is_left = o.proj_type == left || o.proj_type == full || (o.proj_type == std && !is_tall) ||
                           (o.proj_type == reverse_std && is_tall);
      const bool is_right = o.proj_type == right || o.proj_type == full || (o.proj_type == std && is_tall) ||
                            (o.proj_type == reverse_std && !is_tall);
      if (is_left) reduced = torch::matmul(s.kept["u"].t(), reduced);
      if (is_right) reduced = torch::matmul(reduced, s.kept["vh"].t());
      torch::Tensor &m = s.zeros("m", reduced.sizes()), &v = s.zeros("v", reduced.sizes());
      m = o.beta1 * m + (1 - o.beta1) * reduced;
      v = o.beta2 * v + (1 - o.beta2) * reduced * reduced;
      reduced = o.scale * m / (v.sqrt() + o.eps);
      if (is_left) reduced = torch::matmul(s.kept["u"], reduced);
      if (is_right) reduced = torch::matmul(reduced, s.kept["vh"]);
    } else {
      torch::Tensor &m = s.zeros("m", x.sizes()), &v = s.zeros("v", x.sizes());
      m = o.beta1 * m + (1 - o.beta1) * g;
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      reduced = m / (v.sqrt() + o.eps);
    }
    double lr = s.lr;
    if (o.correct_bias) lr *= std::sqrt(1 - std::pow(o.beta2, s.number)) / (1 - std::pow(o.beta1, s.number));
    x.sub_(lr * reduced);
    x.sub_(s.lr * s.weight_decay * x);
  };
}

double after_200_steps(const etude::GaLoreAdamWOptions& options) {
  return beside_formula::after_200_steps<etude::GaLoreAdamW>(options, formula(options));
}

TEST_CASE("GaLore equals the authors' formula over 200 steps, for each type of projection") {
  using enum etude::ProjType;
  for (const auto type : {std, reverse_std, left, right, full})
    CHECK(after_200_steps({.lr = 0.01, .rank = 2, .update_proj_gap = 30, .proj_type = type}) <= 1e-9);
  CHECK(after_200_steps({.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .eps = 0.1, .rank = 4, .scale = 2}) <= 1e-9);
  CHECK(after_200_steps({.lr = 0.01, .correct_bias = false, .rank = 3}) <= 1e-9);
}

TEST_CASE("GaLore equals AdamW where it doesn't project, without weight decay and eps") {
  const beside_torch::Twins twins(at::kDouble);
  etude::GaLoreAdamW galore(beside_torch::groups_of(twins.ours, false), {.lr = 0.01, .eps = 0, .rank = 100});
  etude::AdamW adamw(beside_torch::groups_of(twins.theirs, false), {.lr = 0.01, .eps = 0, .weight_decay = 0});
  for (std::int64_t step = 0; step < 200; ++step) {
    galore.zero_grad();
    adamw.zero_grad();
    twins.set_gradients(step);
    galore.step();
    adamw.step();
  }
  CHECK(twins.difference() <= 1e-12);
}

TEST_CASE("GaLore with full rank and scale 1 equals AdamW for diagonal gradients") {
  // The singular vectors of a diagonal matrix with decreasing elements are those of the identity.
  const torch::Tensor x = torch::ones({3, 3}, at::kDouble).set_requires_grad(true),
                      y = torch::ones({3, 3}, at::kDouble).set_requires_grad(true);
  etude::GaLoreAdamW galore({{{{"x", x}}, {}, {}}},
                            {.lr = 0.1, .eps = 1e-12, .rank = 3, .update_proj_gap = 1, .scale = 1});
  etude::AdamW adamw({{{{"y", y}}, {}, {}}}, {.lr = 0.1, .eps = 1e-12, .weight_decay = 0});
  for (int step = 1; step <= 15; ++step) {
    const torch::Tensor gradient =
        (torch::tensor({3.0, 2.0, 1.0}, at::kDouble) * std::cos(0.1 * step)).diag();
    x.mutable_grad() = gradient;
    y.mutable_grad() = gradient.clone();
    galore.step();
    adamw.step();
  }
  CHECK(torch::allclose(x, y, 0, 1e-9));
  CHECK(x[0][0].item<double>() < 0);
}

TEST_CASE("GaLore keeps moments of the projected size, for target_modules alone") {
  etude::NamedTensors parameters{{"attn.weight", torch::ones({12, 8})},
                                 {"mlp.weight", torch::ones({8, 20})},
                                 {"attn.bias", torch::ones({12})},
                                 {"small.weight", torch::ones({3, 20})}};
  for (auto& [name, tensor] : parameters) tensor.set_requires_grad(true);
  const auto sizes = [&](const std::string& targets) {
    etude::GaLoreAdamW galore({{parameters, {}, {}}}, {.rank = 4, .target_modules = targets});
    for (auto& [name, tensor] : parameters) tensor.mutable_grad() = torch::rand_like(tensor);
    galore.step();
    std::map<std::string, std::vector<std::int64_t>> result;
    for (const auto& [name, tensor] : galore.state()) result[name] = tensor.sizes().vec();
    return result;
  };
  using Sizes = std::vector<std::int64_t>;
  auto all = sizes("*");
  CHECK(all["attn.weight.exp_avg"] == Sizes{12, 4});
  CHECK(all["attn.weight.projector_right"] == Sizes{4, 8});
  CHECK(all["mlp.weight.exp_avg_sq"] == Sizes{4, 20});
  CHECK(all["mlp.weight.projector_left"] == Sizes{8, 4});
  CHECK(all["attn.bias.exp_avg"] == Sizes{12});
  CHECK(all["small.weight.exp_avg"] == Sizes{3, 20});
  auto some = sizes("mlp small");
  CHECK(some["attn.weight.exp_avg"] == Sizes{12, 8});
  CHECK(some["mlp.weight.exp_avg"] == Sizes{4, 20});
  CHECK(toy::fault_of<etude::ArgumentError>([&] {
          sizes("attn ffn");
        }).starts_with("target_modules has the pattern 'ffn': must name a parameter or module, such as "));
}

TEST_CASE("GaLore names a parameter whose gradient isn't finite") {
  const torch::Tensor x = torch::ones({4, 4}).set_requires_grad(true);
  etude::GaLoreAdamW galore({{{{"layer.weight", x}}, {}, {}}}, {.rank = 2});
  x.mutable_grad() = torch::full({4, 4}, std::numeric_limits<float>::quiet_NaN());
  CHECK(toy::fault_of<etude::Error>([&] {
          galore.step();
        }).starts_with("the gradient of parameter 'layer.weight' can't be decomposed"));
}

TEST_CASE("GaLore resumes bit for bit and updates bfloat16 in float32") {
  using enum etude::ProjType;
  for (const auto type : {std, full})
    CHECK(beside_formula::resumes_to_the_bit<etude::GaLoreAdamW>(
        at::kFloat, etude::GaLoreAdamWOptions{.rank = 2, .update_proj_gap = 30, .proj_type = type}));
  CHECK(beside_formula::updates_halves_in_float32<etude::GaLoreAdamW>(
      etude::GaLoreAdamWOptions{.lr = 0.1, .rank = 2}));
}

}  // namespace optim_galore_adamw_test
