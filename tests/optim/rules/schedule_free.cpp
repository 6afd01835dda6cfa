#include "etude/optim/rules/schedule_free.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/fault_of.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "optim/compare.hpp"

namespace optim_rules_schedule_free_test {

using etude::AdamWScheduleFree;
using etude::AdamWScheduleFreeOptions;
using etude::SGDScheduleFree;
using etude::SGDScheduleFreeOptions;
using etude::WeightsInUse;

/// The number of a group's step, and what the average of the paper's algorithm 1 keeps for the group.
struct PaperGroup {
  double warmup, power, lr_power;
  double k = 0, lr = 0, lr_max = 0, weight_sum = 0, share = 0;

  void begin_step(double given) {
    ++k;
    lr = given * std::min(1.0, k / warmup);
    lr_max = std::max(lr_max, lr);
    const double weight = std::pow(k, power) * std::pow(lr_max, lr_power);
    weight_sum += weight;
    share = weight / weight_sum;
  }
};

/// One element of that algorithm, which keeps x and z.
struct PaperElement {
  double x, z = x, square = 0;
  std::int64_t steps = 0;

  double y(double momentum) const { return momentum * x + (1 - momentum) * z; }
  void step(const PaperGroup& group, double direction) {
    z -= group.lr * direction;
    x += group.share * (z - x);
  }
  void adamw_step(const PaperGroup& group, double gradient, double beta1, double beta2, double eps,
                  double decay) {
    square = beta2 * square + (1 - beta2) * gradient * gradient;
    const double mean = square / (1 - std::pow(beta2, ++steps));
    step(group, gradient / (std::sqrt(mean) + eps) + decay * y(beta1));
  }
  void sgd_step(const PaperGroup& group, double gradient, double momentum, double decay) {
    step(group, gradient + decay * y(momentum));
  }
};

std::vector<double> numbers_in(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

/// Compares 300 steps with the paper; `element_step(element, group, gradient, decay)` makes one of its steps.
template <class Optimizer, class ElementStep>
void compare(const typename Optimizer::Options& options, double momentum, const ElementStep& element_step) {
  const beside_torch::Twins twins(at::kDouble);
  Optimizer optimizer(beside_torch::groups_of(twins.ours, true), options);
  const auto warmup = static_cast<double>(std::max<std::int64_t>(options.warmup_steps, 1));
  std::vector<PaperGroup> groups(2, {warmup, options.r, options.weight_lr_power});
  std::vector<std::vector<PaperElement>> elements;
  for (const auto& [name, tensor] : twins.theirs) {
    elements.emplace_back();
    for (const double value : numbers_in(tensor)) elements.back().push_back({value});
  }
  const auto check = [&](const auto& expected) {
    for (std::size_t p = 0; p < elements.size(); ++p) {
      const auto ours = numbers_in(twins.ours[p].second);
      for (std::size_t i = 0; i < ours.size(); ++i)
        CHECK(ours[i] == doctest::Approx(expected(elements[p][i])).epsilon(1e-11));
    }
  };
  for (std::int64_t step = 0; step < 300; ++step) {
    const double factor = step < 100 ? 0.2 + 0.008 * static_cast<double>(step) : 0.7;  // rises, and falls
    for (std::size_t g = 0; g < 2; ++g) {
      optimizer.param_groups()[g].lr = factor * optimizer.param_groups()[g].initial_lr;
      groups[g].begin_step(optimizer.param_groups()[g].lr);
    }
    optimizer.zero_grad();
    twins.set_gradients(step);
    for (std::size_t p = 0; p < elements.size(); ++p) {
      const auto& [name, tensor] = twins.theirs[p];
      if (!tensor.grad().defined()) continue;
      const bool decays = etude::decays_by_name(name);
      const auto gradient = numbers_in(tensor.grad());
      for (std::size_t i = 0; i < gradient.size(); ++i)
        element_step(elements[p][i], groups[decays ? 0 : 1], gradient[i], decays ? 0.2 : 0.0);
    }
    optimizer.step();
    // Gradients are those of `theirs`, which must be at the training's weights too.
    const torch::NoGradGuard no_grad;
    for (std::size_t p = 0; p < elements.size(); ++p)
      torch::Tensor(twins.theirs[p].second).copy_(twins.ours[p].second);
  }
  check([&](const PaperElement& element) { return element.y(momentum); });
  CHECK(optimizer.use_weights(WeightsInUse::averaged));
  check([](const PaperElement& element) { return element.x; });
}

TEST_CASE("Schedule-Free AdamW and SGD equal the paper's algorithm, with their kernels and without") {
  for (const bool uses_kernels : {true, false}) {
    etude::detail::uses_cpu_kernels() = uses_kernels;
    for (const bool weighs : {false, true}) {
      AdamWScheduleFreeOptions adamw{.lr = 1e-2, .beta1 = 0.85, .beta2 = 0.97};
      SGDScheduleFreeOptions sgd{.lr = 0.1, .momentum = 0.7};
      if (weighs) {
        adamw.warmup_steps = sgd.warmup_steps = 20;
        adamw.r = sgd.r = 1.5;
        adamw.weight_lr_power = sgd.weight_lr_power = 1;
      }
      compare<AdamWScheduleFree>(adamw, 0.85,
                                 [](auto& element, const auto& group, double gradient, double decay) {
                                   element.adamw_step(group, gradient, 0.85, 0.97, 1e-8, decay);
                                 });
      compare<SGDScheduleFree>(sgd, 0.7, [](auto& element, const auto& group, double gradient, double decay) {
        element.sgd_step(group, gradient, 0.7, decay);
      });
    }
    etude::detail::uses_cpu_kernels() = true;
  }
}

etude::NamedTensors copies(const etude::NamedTensors& tensors) {
  etude::NamedTensors result;
  for (const auto& [name, tensor] : tensors)
    result.emplace_back(name, tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
  return result;
}

bool equal(const etude::NamedTensors& a, const etude::NamedTensors& b) {
  return std::ranges::equal(a, b, [](const auto& left, const auto& right) {
    return left.first == right.first && torch::equal(left.second, right.second);
  });
}

/// Minimizes a noisy quadratic function.
void train(etude::Optimizer& optimizer, const etude::NamedTensors& parameters, std::int64_t from,
           std::int64_t to) {
  for (auto step = from; step < to; ++step) {
    optimizer.zero_grad();
    torch::manual_seed(static_cast<std::uint64_t>(step));
    for (const auto& [name, tensor] : parameters) {
      const torch::Tensor noise = torch::randn(tensor.sizes()).to(tensor.scalar_type());
      if (!beside_torch::Twins::gets_gradient(name, step)) continue;
      ((tensor - 1).square() * 0.15 + tensor * noise).sum().backward();
    }
    optimizer.step();
  }
}

template <class Act>
void for_both(const Act& act) {
  act([](const auto& groups) {
    return std::make_unique<AdamWScheduleFree>(groups,
                                               AdamWScheduleFreeOptions{.lr = 0.02, .warmup_steps = 5});
  });
  act([](const auto& groups) {
    return std::make_unique<SGDScheduleFree>(groups, SGDScheduleFreeOptions{.lr = 0.2, .warmup_steps = 5});
  });
}

TEST_CASE("the training's weights return bit for bit after averages, which may be requested twice") {
  for_both([](const auto& make) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      CAPTURE(type);
      const beside_torch::Twins twins(type);
      const auto optimizer = make(beside_torch::groups_of(twins.ours, true));
      CHECK(optimizer->use_weights(WeightsInUse::averaged));  // before the first step, all weights are equal
      CHECK(optimizer->use_weights(WeightsInUse::training));
      train(*optimizer, twins.ours, 0, 12);
      const auto before = copies(twins.ours);
      CHECK(optimizer->use_weights(WeightsInUse::averaged));
      CHECK_FALSE(optimizer->use_weights(WeightsInUse::averaged));
      const auto averages = copies(twins.ours);
      CHECK_FALSE(equal(averages, before));
      CHECK(optimizer->use_weights(WeightsInUse::training));
      CHECK_FALSE(optimizer->use_weights(WeightsInUse::training));
      CHECK(equal(copies(twins.ours), before));
      CHECK(optimizer->use_weights(WeightsInUse::averaged));
      CHECK(equal(copies(twins.ours), averages));
    }
  });
}

TEST_CASE(
    "parameters that a callback freezes or moves while averages are in use keep the training's weights") {
  for_both([](const auto& make) {
    const beside_torch::Twins twins(at::kFloat);
    const auto optimizer = make(beside_torch::groups_of(twins.ours, true));
    train(*optimizer, twins.ours, 0, 12);
    const auto before = copies(twins.ours);
    optimizer->use_weights(WeightsInUse::averaged);
    for (const auto& [name, tensor] : twins.ours) {
      if (name == "frozen.weight") tensor.set_requires_grad(true);       // a new layout
      if (name == "a.weight") tensor.set_data(tensor.detach().clone());  // no longer a view of the buffer
    }
    optimizer->flat_parameters().mend();
    optimizer->use_weights(WeightsInUse::training);
    for (std::size_t i = 0; i < before.size(); ++i)
      CHECK(torch::equal(twins.ours[i].second, before[i].second));
  });
}

TEST_CASE("after result, the training's weights follow from the parameters") {
  for_both([](const auto& make) {
    const beside_torch::Twins twins(at::kDouble);
    const auto optimizer = make(beside_torch::groups_of(twins.ours, true));
    train(*optimizer, twins.ours, 0, 12);
    const auto before = copies(twins.ours);
    CHECK(optimizer->use_weights(WeightsInUse::averaged));
    const auto averages = copies(twins.ours);
    CHECK_FALSE(optimizer->use_weights(WeightsInUse::result));  // they are in the parameters already
    CHECK(equal(copies(twins.ours), averages));
    CHECK_FALSE(optimizer->use_weights(WeightsInUse::averaged));
    CHECK(optimizer->use_weights(WeightsInUse::training));
    for (std::size_t i = 0; i < before.size(); ++i)
      CHECK(torch::allclose(twins.ours[i].second, before[i].second, 1e-12, 1e-14));
  });
}

TEST_CASE("a step is refused while the parameters hold an average, and changes nothing") {
  const beside_torch::Twins twins(at::kFloat);
  SGDScheduleFree optimizer(beside_torch::groups_of(twins.ours, true));
  train(optimizer, twins.ours, 0, 3);
  optimizer.use_weights(WeightsInUse::averaged);
  const auto averages = copies(twins.ours);
  CHECK(
      toy::fault_of<etude::Error>([&] { train(optimizer, twins.ours, 3, 4); }) ==
      "the parameters hold the average of SGDScheduleFree: step() needs use_weights(WeightsInUse::training) "
      "before it");
  CHECK(equal(copies(twins.ours), averages));
}

TEST_CASE("state and options continue a training bit for bit, even if taken while averages are in use") {
  for_both([](const auto& make) {
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const bool are_averages_in_use : {false, true}) {
        const beside_torch::Twins twins(type);
        const auto optimizer = make(beside_torch::groups_of(twins.ours, true));
        train(*optimizer, twins.ours, 0, 12);
        if (are_averages_in_use) optimizer->use_weights(WeightsInUse::averaged);
        const auto second = copies(twins.ours);
        const auto resumed = make(beside_torch::groups_of(second, true));
        std::vector<std::string> differences;
        resumed->load_options(nlohmann::ordered_json::parse(optimizer->options_state().dump()), differences);
        resumed->load_state(optimizer->state());
        CHECK(differences.empty());
        optimizer->use_weights(WeightsInUse::training);
        train(*optimizer, twins.ours, 12, 25);
        train(*resumed, second, 12, 25);
        CHECK(equal(copies(twins.ours), copies(second)));
        CHECK(equal(optimizer->state(), resumed->state()));
        optimizer->use_weights(WeightsInUse::averaged);
        resumed->use_weights(WeightsInUse::averaged);
        CHECK(equal(copies(twins.ours), copies(second)));
      }
  });
}

TEST_CASE("the state has the training's weights under y, which don't count as memory") {
  const beside_torch::Twins twins(at::kFloat);
  AdamWScheduleFree optimizer(beside_torch::groups_of(twins.ours, true));
  train(optimizer, twins.ours, 0, 12);
  const auto before = copies(twins.ours);
  const auto bytes = optimizer.state_bytes();
  for (const auto use : {WeightsInUse::training, WeightsInUse::averaged}) {
    optimizer.use_weights(use);
    std::map<std::string, torch::Tensor> state;
    for (const auto& [name, tensor] : optimizer.state()) state.emplace(name, tensor);
    for (const auto& [name, weights] : before) {
      if (!state.contains(name + ".step")) continue;
      CHECK(torch::equal(state.at(name + ".y"), weights));
      CHECK(state.contains(name + ".z_minus_y"));
      CHECK(state.contains(name + ".exp_avg_sq"));
    }
    CHECK(optimizer.state_bytes() == bytes);
  }
}

TEST_CASE("with the moments in the host's memory, all is the same") {
  for_both([](const auto& make) {
    const beside_torch::Twins plain(at::kFloat), twins(at::kFloat);
    const auto expected = make(beside_torch::groups_of(plain.ours, true)),
               offloaded = make(beside_torch::groups_of(twins.ours, true));
    CHECK(offloaded->offload_moments());
    etude::detail::uses_cpu_kernels() = false;  // which an offloaded optimizer doesn't use
    train(*expected, plain.ours, 0, 12);
    train(*offloaded, twins.ours, 0, 12);
    etude::detail::uses_cpu_kernels() = true;
    CHECK(equal(copies(plain.ours), copies(twins.ours)));
    expected->use_weights(WeightsInUse::averaged);
    offloaded->use_weights(WeightsInUse::averaged);
    CHECK(equal(copies(plain.ours), copies(twins.ours)));
  });
}

TEST_CASE("a captured step counts its groups' steps like any other") {
  for_both([](const auto& make) {
    const beside_torch::Twins plain(at::kDouble), twins(at::kDouble);
    const auto expected = make(beside_torch::groups_of(plain.ours, true)),
               captured = make(beside_torch::groups_of(twins.ours, true));
    etude::detail::uses_cpu_kernels() = false;
    CHECK(captured->make_capturable());
    for (std::int64_t step = 0; step < 9; ++step) {
      train(*expected, plain.ours, 3 * step, 3 * step + 1);  // always with the same gradients
      if (step > 0) captured->prepare_captured_step();
      train(*captured, twins.ours, 3 * step, 3 * step + 1);
    }
    etude::detail::uses_cpu_kernels() = true;
    CHECK(captured->param_groups()[0].kept == expected->param_groups()[0].kept);
    for (const auto use : {WeightsInUse::training, WeightsInUse::averaged}) {
      expected->use_weights(use);
      captured->use_weights(use);
      for (std::size_t i = 0; i < plain.ours.size(); ++i)
        CHECK(torch::allclose(twins.ours[i].second, plain.ours[i].second, 1e-6, 1e-7));
    }
  });
}

TEST_CASE("in pure bfloat16, the average is as close to float32's as its rounding allows") {
  const beside_torch::Twins twins(at::kBFloat16);
  etude::NamedTensors wide;
  for (const auto& [name, tensor] : twins.ours)
    wide.emplace_back(name, tensor.detach().to(at::kFloat).set_requires_grad(tensor.requires_grad()));
  SGDScheduleFree optimizer(beside_torch::groups_of(twins.ours, false), {.lr = 1e-4}),
      reference(beside_torch::groups_of(wide, false), {.lr = 1e-4});
  for (std::int64_t step = 0; step < 400; ++step) {
    for (auto* each :
         {static_cast<etude::Optimizer*>(&optimizer), static_cast<etude::Optimizer*>(&reference)})
      each->zero_grad();
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (!beside_torch::Twins::gets_gradient(wide[i].first, step)) continue;
      const torch::Tensor gradient = torch::ones_like(twins.ours[i].second.detach());
      twins.ours[i].second.mutable_grad() = gradient;
      wide[i].second.mutable_grad() = gradient.to(at::kFloat);
    }
    optimizer.step();
    reference.step();
  }
  optimizer.use_weights(WeightsInUse::averaged);
  reference.use_weights(WeightsInUse::averaged);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const torch::Tensor difference = (twins.ours[i].second.to(at::kFloat) - wide[i].second).abs();
    const torch::Tensor allowed = wide[i].second.abs() / 128 + 1e-3;
    CHECK((difference <= allowed).all().item<bool>());
  }
}

TEST_CASE("options out of range, a cycled momentum and corrupt numbers in a checkpoint are refused") {
  const beside_torch::Twins twins(at::kFloat);
  const auto groups = beside_torch::groups_of(twins.ours, false);
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { SGDScheduleFree(groups, {.momentum = 0}); }),
                      "momentum is 0: must be above 0 and below 1"));
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { AdamWScheduleFree(groups, {.beta1 = 1}); }),
                      "beta1 is 1: must be above 0 and below 1"));
  CHECK(toy::contains(
      toy::fault_of<etude::ArgumentError>([&] { AdamWScheduleFree(groups, {.warmup_steps = -1}); }),
      "warmup_steps is -1: must be at least 0"));

  SGDScheduleFree optimizer(groups);
  train(optimizer, twins.ours, 0, 3);
  const auto saved = optimizer.options_state();
  CHECK(saved["changed"][0]["k"] == 3);
  for (const auto& [name, value] : {std::pair("k", nlohmann::ordered_json(-1)),
                                    {"k", nlohmann::ordered_json("three")},
                                    {"lr_max", nlohmann::ordered_json(-0.5)},
                                    {"weight_sum", nlohmann::ordered_json(nullptr)}}) {
    auto spoilt = saved;
    spoilt["changed"][0][name] = value;
    std::vector<std::string> differences;
    CHECK(toy::contains(toy::fault_of([&] { optimizer.load_options(spoilt, differences); }), name));
    CHECK(optimizer.options_state() == saved);
  }

  optimizer.param_groups()[0].momentum = 0.5;
  CHECK(toy::contains(toy::fault_of<etude::ArgumentError>([&] { train(optimizer, twins.ours, 3, 4); }),
                      "cycle_momentum"));
}

}  // namespace optim_rules_schedule_free_test
