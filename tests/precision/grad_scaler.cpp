#include "etude/precision/grad_scaler.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/optim/rules/lbfgs.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace precision_grad_scaler_test {

constexpr auto infinity = std::numeric_limits<float>::infinity();

torch::Tensor weight(float value) { return torch::full({3}, value).requires_grad_(); }

std::vector<etude::ParameterGroup> group_of(const char* name, const torch::Tensor& parameter) {
  return {{{{name, parameter}}, {}, {}}};
}

TEST_CASE("a step divides the gradients by the scale, and clipping sees them unscaled") {
  const auto w = weight(1);
  etude::SGD optimizer(group_of("w", w), {.lr = 0.5});
  etude::GradScaler scaler({.init_scale = 1024});
  optimizer.zero_grad();
  scaler.scale((w * 3).sum()).backward();
  CHECK(w.grad()[0].item<double>() == 3 * 1024);
  CHECK(scaler.unscale(optimizer));
  CHECK(scaler.unscale(optimizer));
  CHECK(optimizer.grad_norm().item<double>() == doctest::Approx(3 * std::sqrt(3.0)));
  CHECK(scaler.step(optimizer));
  CHECK(w[0].item<double>() == 1 - 0.5 * 3);
}

TEST_CASE("an overflow skips the optimizer that has it, keeps its momentum, and shrinks the scale once") {
  const auto a = weight(1), b = weight(1);
  etude::SGD first(group_of("a", a), {.lr = 0.5, .momentum = 0.9});
  etude::SGD second(group_of("b", b), {.lr = 0.5});
  etude::GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  const auto run = [&](float factor) {
    first.zero_grad();
    second.zero_grad();
    scaler.scale((a * factor).sum() + b.sum()).backward();
    const bool stepped = scaler.step(first);
    CHECK(scaler.step(second));
    scaler.update();
    return stepped;
  };
  CHECK(run(1));
  CHECK(scaler.state().growth_tracker == 1);
  CHECK(!run(infinity));
  CHECK(scaler.get_scale() == 4);
  CHECK(scaler.state().growth_tracker == 0);
  CHECK(a[0].item<double>() == 0.5);
  CHECK(b[0].item<double>() == 0);
  CHECK(run(1));
  CHECK(a[0].item<float>() == doctest::Approx(0.5 - 0.5 * 1.9));  // as if the skipped step hadn't happened
  CHECK(run(1));
  CHECK(scaler.get_scale() == 8);
}

TEST_CASE("NaN is an overflow, and so is an infinity in gradients that are flat") {
  const auto w = weight(1);
  etude::SGD optimizer(group_of("w", w), {.lr = 0.5});
  optimizer.flat_parameters().keep_gradients_flat();
  etude::GradScaler scaler;
  for (const float factor : {NAN, -infinity}) {
    optimizer.zero_grad();
    scaler.scale((w * factor).sum()).backward();
    CHECK(!scaler.step(optimizer));
    scaler.update();
  }
  CHECK(scaler.get_scale() == 16384);
}

TEST_CASE("the scale doesn't grow beyond float32") {
  const auto w = weight(1);
  etude::SGD optimizer(group_of("w", w), {.lr = 0});
  etude::GradScaler scaler({.init_scale = 3e38, .growth_interval = 1});
  scaler.scale((w * 1e-9).sum()).backward();
  CHECK(scaler.step(optimizer));
  scaler.update();
  CHECK(scaler.get_scale() == doctest::Approx(3e38));
}

TEST_CASE("a saved state continues where it was, and an invalid one is refused by name") {
  etude::GradScaler scaler, other;
  scaler.load_state({512, 7});
  other.load_state(scaler.state());
  CHECK(other.get_scale() == 512);
  CHECK(other.state().growth_tracker == 7);
  CHECK_THROWS_WITH_AS(other.load_state({0, 7}),
                       "the scale of the gradient scaler is 0: must be positive and finite",
                       etude::CheckpointError);
  CHECK_THROWS_AS(other.load_state({INFINITY, 7}), etude::CheckpointError);
  CHECK_THROWS_WITH_AS(other.load_state({1, -1}),
                       "the growth_tracker of the gradient scaler is -1: must be at least 0",
                       etude::CheckpointError);
  CHECK(other.get_scale() == 512);
}

TEST_CASE("options out of range and an optimizer with a closure are refused") {
  CHECK_THROWS_WITH_AS(etude::GradScaler({.backoff_factor = 1}), doctest::Contains("backoff_factor"),
                       etude::ArgumentError);
  const auto w = weight(1);
  etude::LBFGS optimizer(group_of("w", w), {});
  etude::GradScaler scaler;
  CHECK_THROWS_WITH_AS(scaler.step(optimizer),
                       "LBFGS evaluates its loss several times per step: a GradScaler can't be used with it",
                       etude::ArgumentError);
}

}  // namespace precision_grad_scaler_test
