#include <doctest/doctest.h>
#include <torch/types.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "etude/optim/elements.hpp"

namespace optim_elements_test {

using etude::detail::Elements;

torch::Tensor numbers(std::uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn({7, 3});
}

TEST_CASE("a formula is bit-identical to the operations of torch::optim") {
  const torch::NoGradGuard no_grad;
  const auto gradient = numbers(1), start = numbers(2), squares = numbers(3).square();
  auto mean = start.clone(), square = squares.clone(), value = numbers(4);
  auto expected = value.clone();
  Elements m = Elements::stored_in(mean), s = Elements::stored_in(square), v = Elements::stored_in(value);
  const Elements g(gradient);
  m = m * 0.9 + g * (1 - 0.9);
  s = s * 0.999 + g * g * (1 - 0.999);
  v = v * 0.99 - m / (sqrt(s) / 0.3 + 1e-8) * 0.01;
  const auto mean_now = start.mul(0.9).add_(gradient, 1 - 0.9),
             square_now = squares.mul(0.999).addcmul_(gradient, gradient, 1 - 0.999);
  expected.mul_(0.99).addcdiv_(mean_now, square_now.sqrt().div_(0.3).add_(1e-8), -0.01);
  CHECK(torch::equal(mean, mean_now));
  CHECK(torch::equal(square, square_now));
  CHECK(torch::equal(value, expected));
}

TEST_CASE("an assignment writes to the tensor that it was made from, at the latest when it is stored") {
  const torch::NoGradGuard no_grad;
  const auto first = numbers(1), second = numbers(2);
  auto a = first.clone(), b = second.clone();
  const auto* where = a.data_ptr();
  Elements x = Elements::stored_in(a), y = Elements::stored_in(b);
  SUBCASE("in place where it is itself times a number plus something, in any order") {
    x = y * 2 + x * 3;
    CHECK(torch::allclose(a, first * 3 + second * 2));
  }
  SUBCASE("in the end otherwise") {
    x = x * x - y;
    CHECK(torch::equal(a, first));
    x.store();
    CHECK(torch::allclose(a, first.square() - second));
  }
  SUBCASE("where a local variable has the old elements, which it keeps") {
    const Elements before = x;
    x = x * 3 + y;
    CHECK(torch::equal(before.tensor(), first));
    x.store();
    CHECK(torch::allclose(a, first * 3 + second));
  }
  SUBCASE("where another moment has them, which keeps them too") {
    y = x;
    x = x * 3 + 1;
    x.store();
    y.store();
    CHECK(torch::equal(b, first));
    CHECK(torch::allclose(a, first * 3 + 1));
  }
  CHECK(a.data_ptr() == where);
}

TEST_CASE("operands stay as they are, and so does a gradient to which something is assigned") {
  const torch::NoGradGuard no_grad;
  const auto gradient = numbers(1), kept = gradient.clone();
  Elements g(gradient);
  const Elements root = sqrt(abs(g)), twice = g + g, ratio = g / (2.0 - g);
  g = g * 0.5 + 1;
  CHECK(torch::equal(gradient, kept));
  CHECK(torch::allclose(root.tensor(), kept.abs().sqrt()));
  CHECK(torch::allclose(twice.tensor(), kept * 2));
  CHECK(torch::allclose(ratio.tensor(), kept / (2 - kept)));
  CHECK(torch::allclose(g.tensor(), kept * 0.5 + 1));
}

TEST_CASE("a term times 0 is left out, even if it has an infinity") {
  const torch::NoGradGuard no_grad;
  const auto infinite = torch::full({2}, std::numeric_limits<float>::infinity());
  const Elements a(infinite), b(torch::ones({2}));
  CHECK(torch::equal(Elements(b + a * 0).tensor(), b.tensor()));
  CHECK(torch::equal(Elements(a * 0 + b).tensor(), b.tensor()));
}

TEST_CASE("elements are compared as LibTorch does") {
  const torch::NoGradGuard no_grad;
  const float nan = std::nanf("");
  const Elements a(torch::tensor({-2.F, 0.F, 3.F, nan})), b(torch::tensor({1.F, 1.F, 1.F, 1.F}));
  const auto equal = [](const Elements& elements, const std::vector<float>& expected) {
    return torch::allclose(elements.tensor(), torch::tensor(expected), 0, 0, /*equal_nan=*/true);
  };
  CHECK(equal(max(a, b), {1, 1, 3, nan}));
  CHECK(equal(min(a, b), {-2, 0, 1, nan}));
  CHECK(equal(max(a, 0.5), {0.5, 0.5, 3, nan}));
  CHECK(equal(if_positive(a, b * 2, 0.5), {0.5, 0.5, 2, 0.5}));
  CHECK(torch::equal(Elements(sign(a)).tensor().narrow(0, 0, 3), torch::tensor({-1.F, 0.F, 1.F})));
}

TEST_CASE("0-dim tensors serve as numbers, and the dtype stays that of the elements") {
  const torch::NoGradGuard no_grad;
  const auto first = numbers(1), gradient = numbers(2);
  auto value = first.clone();
  const Elements lr(torch::tensor(0.1, at::kDouble)), keep(torch::tensor(0.9, at::kDouble)), g(gradient);
  Elements v = Elements::stored_in(value);
  v = v * keep - sign(g) * lr;
  v = keep * v + lr;
  v.store();
  CHECK((value.scalar_type() == at::kFloat));
  CHECK(torch::allclose(value, (first * 0.9 - gradient.sign() * 0.1) * 0.9 + 0.1));
}

}  // namespace optim_elements_test
