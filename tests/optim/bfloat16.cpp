#include "etude/optim/bfloat16.hpp"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/lion.hpp"
#include "etude/optim/rules/sgd.hpp"

namespace optim_bfloat16_test {

using etude::Rounding;

torch::Tensor parameter(const torch::Tensor& values) {
  return values.to(torch::kBFloat16).set_requires_grad(true);
}

std::vector<etude::ParameterGroup> group_of(const torch::Tensor& tensor) {
  return {{{{"p", tensor}}, {}, {}}};
}

/// Makes a step with this gradient.
void step(etude::Optimizer& optimizer, const torch::Tensor& tensor, const torch::Tensor& gradient) {
  optimizer.zero_grad();
  tensor.mutable_grad() = gradient.to(tensor.scalar_type());
  optimizer.step();
}

std::int32_t bits_of(const torch::Tensor& tensor, std::int64_t i) {
  return tensor.detach().contiguous().view(torch::kShort)[i].item<std::int16_t>() & 0xffff;
}

torch::Tensor moment(etude::Optimizer& optimizer, const std::string& name) {
  for (const auto& [key, tensor] : optimizer.state())
    if (key == "p." + name) return tensor;
  return {};
}

/// With a learning rate of 1, SGD subtracts the gradient: the parameter becomes 1 + `added`, rounded.
torch::Tensor one_plus(double added, Rounding rounding, bool fused, std::int64_t size = 7,
                       std::int64_t seed = 0) {
  const auto tensor = parameter(torch::ones({size}));
  etude::SGD optimizer(group_of(tensor), {.lr = 1, .fused = fused, .rounding = rounding, .seed = seed});
  step(optimizer, tensor, torch::full({size}, -added));
  return tensor.detach();
}

TEST_CASE("rounding to nearest gives the bits of IEEE 754's rule, ties to even") {
  // bfloat16 has 7 bits of fraction: the neighbours of 1 are 1 + 2^-7 and 1 - 2^-8.
  const std::vector<std::pair<double, std::int32_t>> expected{
      {std::ldexp(1, -9), 0x3f80},    // a quarter of the distance to the next
      {std::ldexp(1, -8), 0x3f80},    // a tie, to even
      {std::ldexp(1.5, -8), 0x3f81},  // above a tie
      {std::ldexp(3, -8), 0x3f82},    // a tie, to even, upwards
      {-std::ldexp(1, -9), 0x3f80},   // a tie below 1, to even
      {-std::ldexp(3, -9), 0x3f7e},   // a tie below 1, to even, downwards
      {1, 0x4000}};
  for (const auto& [added, bits] : expected)
    for (const bool fused : {true, false}) {
      const double update = added;  // Clang 15 can't capture a structured binding
      CAPTURE(update);
      CAPTURE(fused);
      const auto result = one_plus(added, Rounding::nearest, fused);
      for (std::int64_t i = 0; i < result.numel(); ++i) CHECK(bits_of(result, i) == bits);
    }
}

TEST_CASE("kahan splits a float32 into its nearest bfloat16 and the lower half of its bits") {
  // 1 + 2^-8 + 2^-16 is 0x3f808080: its lower half, 0x8080, is negative as int16, so the upper half is
  // rounded up.
  for (const bool fused : {true, false}) {
    CAPTURE(fused);
    const auto tensor = parameter(torch::ones({7}));
    etude::SGD optimizer(group_of(tensor), {.lr = 1, .fused = fused});
    step(optimizer, tensor, torch::full({7}, -std::ldexp(1, -8)));
    step(optimizer, tensor, torch::full({7}, -std::ldexp(1, -16)));
    const auto compensation = moment(optimizer, "compensation");
    CHECK((compensation.scalar_type() == torch::kShort));
    for (std::int64_t i = 0; i < 7; ++i) {
      CHECK(bits_of(tensor, i) == 0x3f81);
      CHECK(compensation[i].item<std::int16_t>() == static_cast<std::int16_t>(0x8080));
    }
  }
}

TEST_CASE(
    "with kahan, SGD on bfloat16 is SGD on float32 but for the last bit, where rounding to nearest stalls") {
  for (const bool fused : {true, false}) {
    CAPTURE(fused);
    torch::manual_seed(5);
    const auto start = torch::randn({1003}).to(torch::kBFloat16).to(torch::kFloat);
    const auto precise = start.clone().set_requires_grad(true);
    const auto kahan = parameter(start), nearest = parameter(start);
    etude::SGD in_float32(group_of(precise), {.lr = 1e-4, .fused = fused});
    etude::SGD with_kahan(group_of(kahan), {.lr = 1e-4, .fused = fused});
    etude::SGD to_nearest(group_of(nearest), {.lr = 1e-4, .fused = fused, .rounding = Rounding::nearest});
    for (int i = 0; i < 500; ++i) {
      const auto gradient = (torch::randn({1003}) + 1).to(torch::kBFloat16);
      step(in_float32, precise, gradient);
      step(with_kahan, kahan, gradient);
      step(to_nearest, nearest, gradient);
    }
    // Computed with integers: the upper half of a float32 is rounded, halves away from zero.
    const auto upper =
        (precise.detach().view(torch::kInt) + 0x8000).bitwise_right_shift(16).to(torch::kShort);
    const auto difference =
        (kahan.detach().view(torch::kShort).to(torch::kInt) - upper.to(torch::kInt)).abs().max();
    // Compilers and operators may contract products and sums differently.
    CHECK(difference.item<int>() <= 1);
    CHECK((kahan.detach().view(torch::kShort) == upper).to(torch::kFloat).mean().item<double>() > 0.999);
    const auto large = start.abs() > 0.5;  // their neighbours are more than 2^-9 away, which is ten steps
    CHECK(torch::equal(nearest.detach().to(torch::kFloat).masked_select(large), start.masked_select(large)));
    CHECK((precise.detach() - start).masked_select(large).mean().item<double>() ==
          doctest::Approx(-0.05).epsilon(0.02));
  }
}

TEST_CASE("stochastic rounding goes to one of the two neighbours, and its mean is exact") {
  constexpr std::int64_t size = 100'000;
  for (const bool fused : {true, false})
    for (const double part : {0.1, 0.5, 0.75}) {
      CAPTURE(fused);
      CAPTURE(part);
      // A tenth, a half and three quarters of the way from 1 to 1 + 2^-7.
      const double added = part / 128;
      const auto exact = torch::tensor(added).to(torch::kBFloat16).item<double>() * 128;
      const auto rounded = one_plus(added, Rounding::stochastic, fused, size).to(torch::kDouble);
      CHECK(((rounded == 1) | (rounded == 1 + 1 / 128.)).all().item<bool>());
      const double mean = (rounded - 1).mul(128).mean().item<double>();
      const double deviation = std::sqrt(exact * (1 - exact) / size);
      CHECK(std::abs(mean - exact) < 4 * deviation);
    }
}

/// The parameter and its moments after some steps.
template <class Optimizer, class Options>
std::vector<torch::Tensor> trained(Options options, std::int64_t size, int steps) {
  torch::manual_seed(2);
  const auto tensor = parameter(torch::randn({size}));
  Optimizer optimizer(group_of(tensor), options);
  for (int i = 0; i < steps; ++i) step(optimizer, tensor, torch::randn({size}));
  std::vector<torch::Tensor> result{tensor.detach().clone()};
  for (const auto& [name, each] : optimizer.state())
    if (!name.ends_with(".step")) result.push_back(each.clone());
  return result;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!torch::equal(a[i], b[i])) return false;
  return true;
}

TEST_CASE("stochastic rounding is the same on any number of threads, and another for each seed and step") {
  constexpr std::int64_t size = 300'001;
  const auto run = [](int threads, std::int64_t seed) {
    at::set_num_threads(threads);
    const auto result =
        trained<etude::AdamW>(etude::AdamWOptions{.rounding = Rounding::stochastic, .seed = seed}, size, 3);
    at::set_num_threads(1);
    return result;
  };
  const auto one = run(1, 0);
  CHECK(equal(one, run(2, 0)));
  CHECK(!equal(one, run(1, 1)));

  // Each step adds a quarter of the distance to the next number. If the bits were the same in each step, an
  // element would move in all four steps or in none.
  const auto tensor = parameter(torch::ones({1000}));
  etude::SGD optimizer(group_of(tensor), {.lr = 1, .rounding = Rounding::stochastic});
  for (int i = 0; i < 4; ++i) step(optimizer, tensor, torch::full({1000}, -std::ldexp(1, -9)));
  const auto moved = (tensor.detach().to(torch::kDouble) - 1) * 128;
  CHECK((moved == 1).to(torch::kDouble).mean().item<double>() == doctest::Approx(0.42).epsilon(0.15));
}

TEST_CASE("an element's random bits depend on its parameter, not on the others beside it") {
  const auto run = [](bool with_another, bool flat) {
    const auto tensor = parameter(torch::ones({1000})), other = parameter(torch::ones({333}));
    etude::NamedTensors all{{"p", tensor}};
    if (with_another) all.insert(all.begin(), {"other", other});
    etude::SGD optimizer({{all, {}, {}}}, {.lr = 1, .rounding = Rounding::stochastic});
    if (flat) optimizer.flat_parameters().keep_gradients_flat();
    for (int i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      for (const auto& [name, each] : all) {
        const auto gradient = torch::full_like(each.detach(), -std::ldexp(1, -9));
        if (each.grad().defined())
          each.mutable_grad().copy_(gradient);
        else
          each.mutable_grad() = gradient;
      }
      optimizer.step();
    }
    return std::pair(tensor.detach().clone(), other.detach().clone());
  };
  const auto [alone, unused] = run(false, false);
  for (const bool flat : {false, true}) {
    const auto [beside, other] = run(true, flat);
    CHECK(torch::equal(alone, beside));
    CHECK(!torch::equal(beside.narrow(0, 0, 333), other));
  }
}

TEST_CASE("all optimizers give the same with operators as in one pass, but for the order of float32 sums") {
  const auto compare = [](const char* name, const std::vector<torch::Tensor>& fused,
                          const std::vector<torch::Tensor>& plain) {
    CAPTURE(name);
    REQUIRE(fused.size() == plain.size());
    // A float32 near the middle of two bfloat16 numbers may be rounded either way; its error isn't large in
    // that case.
    for (std::size_t i = 0; i < fused.size(); ++i) {
      CAPTURE(i);
      if (fused[i].scalar_type() == torch::kShort) continue;
      CHECK((fused[i] == plain[i]).to(torch::kDouble).mean().item<double>() > 0.99);
      CHECK(torch::allclose(fused[i].to(torch::kFloat), plain[i].to(torch::kFloat), 0.02, 1e-3));
    }
  };
  for (const auto rounding : etude::enum_names<Rounding>) {
    const auto by = etude::from_string<Rounding>(rounding);
    CAPTURE(rounding);
    const auto with = [&](auto options, bool fused) {
      options.rounding = by;
      options.lr = 0.01;
      if constexpr (requires { options.fused; }) options.fused = fused;
      return options;
    };
    const auto adamw = etude::AdamWOptions{.weight_decay = 0.1, .amsgrad = true};
    compare("AdamW", trained<etude::AdamW>(with(adamw, true), 1003, 5),
            trained<etude::AdamW>(with(adamw, false), 1003, 5));
    const auto adam = etude::AdamOptions{.weight_decay = 0.1};
    compare("Adam", trained<etude::Adam>(with(adam, true), 1003, 5),
            trained<etude::Adam>(with(adam, false), 1003, 5));
    const auto sgd = etude::SGDOptions{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
    compare("SGD", trained<etude::SGD>(with(sgd, true), 1003, 5),
            trained<etude::SGD>(with(sgd, false), 1003, 5));
  }
}

TEST_CASE("moments follow a gradient that shrinks, as they don't when they are rounded to nearest") {
  // exp_avg_sq falls by 0.1 % per step, but its nearest neighbour is at least 0.2 % away.
  const auto tensor = parameter(torch::ones({20'000}));
  etude::AdamW optimizer(group_of(tensor), {});
  for (int i = 0; i < 300; ++i) step(optimizer, tensor, torch::ones({20'000}));
  const auto before = moment(optimizer, "exp_avg_sq").to(torch::kDouble).mean().item<double>();
  CHECK(before == doctest::Approx(1 - std::pow(0.999, 300)).epsilon(0.01));
  for (int i = 0; i < 700; ++i) step(optimizer, tensor, torch::zeros({20'000}));
  const auto after = moment(optimizer, "exp_avg_sq").to(torch::kDouble).mean().item<double>();
  CHECK(after / before == doctest::Approx(std::pow(0.999, 700)).epsilon(0.01));

  auto stuck = torch::tensor(before).to(torch::kBFloat16);
  const auto first = stuck.item<double>();
  for (int i = 0; i < 700; ++i) stuck = stuck * 0.999;
  CHECK(stuck.item<double>() == first);
}

TEST_CASE("NaN and infinity stay the same") {
  for (const auto rounding : {Rounding::nearest, Rounding::kahan, Rounding::stochastic})
    for (const bool fused : {true, false}) {
      CAPTURE(etude::to_string(rounding));
      CAPTURE(fused);
      const auto tensor = parameter(torch::zeros({6}));
      etude::SGD optimizer(group_of(tensor), {.lr = 1, .fused = fused, .rounding = rounding});
      step(optimizer, tensor, torch::tensor({INFINITY, -INFINITY, NAN, -NAN, 1.F, 0.F}));
      CHECK(tensor[0].item<float>() == -INFINITY);
      CHECK(tensor[1].item<float>() == INFINITY);
      CHECK(std::isnan(tensor[2].item<float>()));
      CHECK(std::isnan(tensor[3].item<float>()));
      CHECK(tensor[4].item<float>() == -1);
      CHECK(tensor[5].item<float>() == 0);
    }
}

TEST_CASE("a saved state continues to the bit, and one without compensation or of float32 fits too") {
  for (const auto rounding : {Rounding::kahan, Rounding::stochastic}) {
    CAPTURE(etude::to_string(rounding));
    const etude::AdamWOptions options{.lr = 0.01, .rounding = rounding};
    torch::manual_seed(3);
    const auto whole = parameter(torch::randn({1003}));
    etude::AdamW uninterrupted(group_of(whole), options);
    const auto gradients = torch::randn({6, 1003});
    for (int i = 0; i < 3; ++i) step(uninterrupted, whole, gradients[i]);
    const auto resumed = parameter(whole.detach().clone());
    etude::AdamW other(group_of(resumed), options);
    etude::NamedTensors state;
    for (const auto& [name, tensor] : uninterrupted.state()) state.emplace_back(name, tensor.clone());
    other.load_state(state);
    for (int i = 3; i < 6; ++i) {
      step(uninterrupted, whole, gradients[i]);
      step(other, resumed, gradients[i]);
    }
    CHECK(torch::equal(whole, resumed));
    for (std::size_t i = 0; i < state.size(); ++i)
      CHECK(torch::equal(uninterrupted.state()[i].second, other.state()[i].second));

    const auto single = whole.detach().to(torch::kFloat).set_requires_grad(true);
    etude::AdamW in_float32(group_of(single), options);
    in_float32.load_state(state);
    CHECK((moment(in_float32, "exp_avg_sq").scalar_type() == torch::kFloat));
    CHECK(!moment(in_float32, "compensation").defined());
    other.load_state(in_float32.state());
    CHECK(torch::equal(moment(other, "exp_avg_sq"), moment(in_float32, "exp_avg_sq").to(torch::kBFloat16)));
  }
  const auto tensor = parameter(torch::ones({3}));
  etude::SGD optimizer(group_of(tensor), {});
  CHECK_THROWS_WITH_AS(optimizer.load_state({{"p.step", torch::scalar_tensor(1, torch::kLong)},
                                             {"p.compensation", torch::zeros({3})}}),
                       "the optimizer state 'p.compensation' is Float [3], expected a Short tensor [3]",
                       etude::CheckpointError);
}

TEST_CASE("parameters of float32 beside those of bfloat16 have no compensation, and are updated as alone") {
  const auto lower = parameter(torch::ones({5})), single = torch::ones({5}).set_requires_grad(true),
             alone = torch::ones({5}).set_requires_grad(true);
  etude::AdamW both({{{{"p", lower}, {"single", single}}, {}, {}}}), one(group_of(alone));
  for (int i = 0; i < 3; ++i) {
    both.zero_grad();
    lower.mutable_grad() = torch::ones({5}, torch::kBFloat16);
    single.mutable_grad() = torch::ones({5});
    both.step();
    step(one, alone, torch::ones({5}));
  }
  CHECK(torch::equal(single, alone));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : both.state()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"p.step", "p.exp_avg", "p.exp_avg_sq", "p.compensation",
                                          "single.step", "single.exp_avg", "single.exp_avg_sq"});
}

TEST_CASE("the norm of bfloat16 gradients is summed in float32, and clipping doesn't round them") {
  const auto tensor = parameter(torch::zeros({1'000'003}));
  etude::SGD optimizer(group_of(tensor), {.lr = 1});
  optimizer.zero_grad();
  tensor.mutable_grad() = torch::full({1'000'003}, 0.01).to(torch::kBFloat16);
  const double element = tensor.grad()[0].item<double>();  // 0.010009765625
  const auto norm = optimizer.clip_grad_norm_in_step(3);
  CHECK((norm.scalar_type() == torch::kFloat));
  CHECK(norm.item<double>() == doctest::Approx(element * std::sqrt(1'000'003.)).epsilon(1e-6));
  CHECK(tensor.grad()[0].item<double>() == element);
  optimizer.step();
  const auto exact = moment(optimizer, "compensation");
  const auto word = (bits_of(tensor, 0) << 16) + exact[0].item<std::int16_t>();
  float updated = 0;
  std::memcpy(&updated, &word, 4);
  CHECK(static_cast<double>(updated) == doctest::Approx(-3 / std::sqrt(1'000'003.)).epsilon(1e-6));
}

TEST_CASE("Lion rounds as it is told") {
  // The direction is -1: each step adds lr = 2^-10, an eighth of the distance to the next number.
  const auto result = [](Rounding rounding) {
    const auto tensor = parameter(torch::ones({4000}));
    etude::Lion optimizer(group_of(tensor), {.lr = std::ldexp(1, -10), .rounding = rounding});
    for (int i = 0; i < 16; ++i) step(optimizer, tensor, -torch::ones({4000}));
    return tensor.detach().to(torch::kDouble);
  };
  CHECK((result(Rounding::nearest) == 1).all().item<bool>());
  CHECK((result(Rounding::kahan) == 1 + 2 / 128.).all().item<bool>());
  CHECK(result(Rounding::stochastic).mean().item<double>() == doctest::Approx(1 + 2 / 128.).epsilon(5e-4));
}

}  // namespace optim_bfloat16_test
