#include "etude/optim/rules/lion_8bit.hpp"

#include <doctest/doctest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/create.hpp"
#include "etude/optim/rules/lion.hpp"
#include "etude/training_arguments.hpp"

#include "optim/saved_state.hpp"

namespace optim_lion_8bit_test {

using saved_state::clones;
using saved_state::entry;

/// Whole numbers divided by a power of two, so that any program computes the same float32 numbers.
torch::Tensor made_gradient(std::int64_t size, std::int64_t step) {
  const torch::Tensor i = torch::arange(size);
  const torch::Tensor numbers = (i * 7919 + step * 104729).remainder(2003).sub(1001);
  return numbers.to(at::kFloat).div(1001).mul(torch::pow(2, i.floor_divide(1000)).to(at::kFloat));
}

torch::Tensor made_parameter(std::int64_t size) {
  return (torch::arange(size) * 31).remainder(97).sub(48).to(at::kFloat).div(64);
}

/// The table of Dettmers 2016 ("8-Bit Approximations for Parallelism in Deep Learning") as bitsandbytes'
/// `create_dynamic_map(signed=True)` builds it.
std::vector<double> published_table() {
  std::vector<double> table{0, 1};
  for (int i = 0; i < 7; ++i) {
    const int items = 1 << i;
    for (int j = 0; j < items; ++j) {
      const double lower = 0.1 + 0.9 * j / items, upper = 0.1 + 0.9 * (j + 1) / items;
      const double value = std::pow(10, i - 6) * (lower + upper) / 2;
      table.push_back(value);
      table.push_back(-value);
    }
  }
  std::ranges::sort(table);
  return table;
}

/// Lion whose momentum is stored in blocks of 256 codes, in double precision.
struct Reference {
  std::vector<double> table = published_table();
  std::vector<double> values, momentum;

  explicit Reference(const torch::Tensor& parameter) : momentum(static_cast<std::size_t>(parameter.numel())) {
    const torch::Tensor flat = parameter.detach().to(at::kDouble).flatten();
    values.assign(flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel());
  }

  void step(const torch::Tensor& gradients, const etude::Lion8bitOptions& options) {
    const torch::Tensor flat = gradients.to(at::kDouble).contiguous();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double gradient = flat.data_ptr<double>()[i];
      const double direction = options.beta1 * momentum[i] + (1 - options.beta1) * gradient;
      values[i] *= 1 - options.lr * options.weight_decay;
      values[i] -= options.lr * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
      momentum[i] = options.beta2 * momentum[i] + (1 - options.beta2) * gradient;
    }
    for (std::size_t begin = 0; begin < momentum.size(); begin += 256) {
      const std::size_t end = std::min(begin + 256, momentum.size());
      double largest = 0;
      for (auto i = begin; i < end; ++i) largest = std::max(largest, std::abs(momentum[i]));
      for (auto i = begin; i < end && largest > 0; ++i)
        momentum[i] = nearest(momentum[i] / largest) * largest;
    }
  }

  double nearest(double x) const {
    return *std::ranges::min_element(table, {}, [&](double value) { return std::abs(value - x); });
  }
};

/// The momentum of a state, as float64.
torch::Tensor momentum_in(const etude::NamedTensors& state) {
  static const std::vector<double> table = published_table();
  const torch::Tensor codes = entry(state, "p.exp_avg").flatten().to(at::kLong);
  const torch::Tensor absmax = entry(state, "p.exp_avg_absmax").to(at::kDouble);
  return torch::tensor(table, at::kDouble).index_select(0, codes) *
         absmax.repeat_interleave(256).narrow(0, 0, codes.numel());
}

TEST_CASE(
    "five steps of Lion with 8 bits equal those of bitsandbytes 0.50.2, by the kernel and by operators") {
  for (const bool uses_kernels : {true, false}) {
    CAPTURE(uses_kernels);
    etude::detail::uses_cpu_kernels() = uses_kernels;
    const torch::Tensor parameter = made_parameter(5000).set_requires_grad(true);
    etude::Lion8bit optimizer({{{{"p", parameter}}, {}, {}}},
                              {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
    for (std::int64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      parameter.mutable_grad() = made_gradient(5000, step);
      optimizer.step();
    }
    etude::detail::uses_cpu_kernels() = true;
    const auto state = optimizer.state();
    const auto codes = entry(state, "p.exp_avg"), absmax = entry(state, "p.exp_avg_absmax");
    struct Expected {
      std::int64_t index;
      double value;
      int code;
    };
    for (const auto& [i, value, code] :
         {Expected{0, -0.716337502, 25}, Expected{1, -0.274259567, 183}, Expected{255, 0.0299400818, 6},
          Expected{256, 0.491918117, 90}, Expected{1234, -0.216504484, 251}, Expected{2500, 0.705203414, 69},
          Expected{4095, 0.336487651, 43}, Expected{4999, 0.196564376, 53}}) {
      const auto index = i;  // Clang 15 can't capture a structured binding
      CAPTURE(index);
      CHECK(parameter[i].item<double>() == doctest::Approx(value).epsilon(1e-6));
      CHECK(codes[i].item<int>() == code);
    }
    CHECK(absmax.sizes() == std::vector<std::int64_t>{20});
    CHECK(absmax[0].item<double>() == doctest::Approx(0.0839976743).epsilon(1e-6));
    CHECK(absmax[7].item<double>() == doctest::Approx(0.334559381).epsilon(1e-6));
    CHECK(absmax[19].item<double>() == doctest::Approx(1.32531035).epsilon(1e-6));
  }
}

TEST_CASE("Lion with 8 bits follows a reference with the published table, element by element") {
  for (const bool uses_kernels : {true, false}) {
    CAPTURE(uses_kernels);
    etude::detail::uses_cpu_kernels() = uses_kernels;
    const torch::Tensor parameter = made_parameter(1000).set_requires_grad(true);
    const etude::Lion8bitOptions options{.lr = 0.01, .beta2 = 0.9, .weight_decay = 0.1, .min_8bit_size = 0};
    Reference reference(parameter);
    etude::Lion8bit optimizer({{{{"p", parameter}}, {}, {}}}, options);
    for (std::int64_t step = 0; step < 30; ++step) {
      optimizer.zero_grad();
      parameter.mutable_grad() = made_gradient(1000, step);
      reference.step(parameter.grad(), options);
      optimizer.step();
    }
    etude::detail::uses_cpu_kernels() = true;
    // A number halfway between two codes may get either; most elements never meet one.
    const torch::Tensor
        value_errors =
            (parameter.detach().to(at::kDouble) - torch::tensor(reference.values, at::kDouble)).abs(),
        momentum_errors =
            (momentum_in(optimizer.state()) - torch::tensor(reference.momentum, at::kDouble)).abs();
    CHECK((value_errors > 1e-6).sum().item<int>() <= 10);
    CHECK((momentum_errors > 1e-6).sum().item<int>() <= 10);
  }
}

TEST_CASE("Lion with 8 bits takes Lion's direction wherever the error of the codes can't reverse it") {
  const std::int64_t size = 3000, blocks = 12;
  const torch::Tensor whole = torch::zeros({size}).set_requires_grad(true),
                      coded = torch::zeros({size}).set_requires_grad(true);
  const double lr = 0.125, beta1 = 0.9, beta2 = 0.9;
  etude::Lion lion({{{{"p", whole}}, {}, {}}}, {.lr = lr, .beta1 = beta1, .beta2 = beta2});
  etude::Lion8bit in_8_bits({{{{"p", coded}}, {}, {}}},
                            {.lr = lr, .beta1 = beta1, .beta2 = beta2, .min_8bit_size = 0});
  // The widest gaps of the table are those of its last decade, 0.9 / 64: rounding is off by half of one,
  // times the largest magnitude of the block.
  const double half_gap = 0.9 / 64 / 2;
  torch::Tensor bound = torch::zeros({blocks}, at::kDouble);
  std::int64_t decided = 0;
  for (std::int64_t step = 0; step < 50; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const torch::Tensor gradient = torch::randn({size});
    const torch::Tensor momentum =
        step == 0 ? torch::zeros({size}) : entry(lion.state(), "p.exp_avg").clone();
    const torch::Tensor before = whole.detach().clone(), before_coded = coded.detach().clone();
    for (auto* optimizer : std::initializer_list<etude::Optimizer*>{&lion, &in_8_bits}) {
      optimizer->zero_grad();
      (optimizer == &lion ? whole : coded).mutable_grad() = gradient.clone();
      optimizer->step();
    }
    const torch::Tensor direction = (momentum * beta1 + gradient * (1 - beta1)).to(at::kDouble);
    const torch::Tensor reach = bound.repeat_interleave(256).narrow(0, 0, size) * beta1 + 1e-6;
    const torch::Tensor is_decided = direction.abs() > reach;
    const torch::Tensor differs = (whole.detach() - before).sign() != (coded.detach() - before_coded).sign();
    CHECK_FALSE(differs.logical_and(is_decided).any().item<bool>());
    decided += is_decided.sum().item<std::int64_t>();

    bound = bound * beta2 + entry(in_8_bits.state(), "p.exp_avg_absmax").to(at::kDouble) * half_gap;
    const torch::Tensor errors =
        (momentum_in(in_8_bits.state()) - entry(lion.state(), "p.exp_avg").to(at::kDouble)).abs();
    CHECK((errors <= bound.repeat_interleave(256).narrow(0, 0, size) + 1e-6).all().item<bool>());
  }
  CHECK(decided > 50 * size * 3 / 4);
}

void train(etude::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t from, std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    optimizer.zero_grad();
    parameter.mutable_grad() = made_gradient(parameter.numel(), step).view(parameter.sizes());
    optimizer.clip_grad_norm_in_step(10);
    optimizer.step();
  }
}

TEST_CASE("a run of Lion with 8 bits that is stored and loaded midway equals one that isn't, bit for bit") {
  for (const std::int64_t min_8bit_size : {0, 1'000'000}) {
    const torch::Tensor whole = made_parameter(5000).view({100, 50}).set_requires_grad(true),
                        halves = made_parameter(5000).view({100, 50}).set_requires_grad(true);
    const etude::Lion8bitOptions options{.lr = 0.01, .min_8bit_size = min_8bit_size};
    etude::Lion8bit uninterrupted({{{{"p", whole}}, {}, {}}}, options);
    train(uninterrupted, whole, 0, 20);
    etude::NamedTensors state;
    {
      etude::Lion8bit first({{{{"p", halves}}, {}, {}}}, options);
      train(first, halves, 0, 10);
      state = clones(first.state());
    }
    etude::Lion8bit second({{{{"p", halves}}, {}, {}}}, options);
    second.load_state(state);
    train(second, halves, 10, 20);
    CHECK(torch::equal(halves, whole));
    for (const auto& [name, tensor] : uninterrupted.state())
      CHECK(torch::equal(entry(second.state(), name), tensor));
  }
}

TEST_CASE("a small parameter has the steps of Lion, bit for bit, and a float32 momentum") {
  const torch::Tensor small = made_parameter(4095).set_requires_grad(true),
                      whole = made_parameter(4095).set_requires_grad(true);
  etude::Lion8bit in_8_bits({{{{"p", small}}, {}, {}}}, {.lr = 0.01, .weight_decay = 0.1});
  etude::Lion lion({{{{"p", whole}}, {}, {}}}, {.lr = 0.01, .weight_decay = 0.1});
  train(in_8_bits, small, 0, 20);
  train(lion, whole, 0, 20);
  CHECK(torch::equal(small, whole));
  CHECK(torch::equal(entry(in_8_bits.state(), "p.exp_avg"), entry(lion.state(), "p.exp_avg")));
}

TEST_CASE("the momentum of Lion with 8 bits takes 1 byte and 4/256 an element") {
  const torch::Tensor parameter = torch::zeros({512, 1000}).set_requires_grad(true);
  etude::Lion8bit optimizer({{{{"p", parameter}}, {}, {}}});
  parameter.sum().backward();
  optimizer.step();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : optimizer.state()) names.push_back(name);
  CHECK(names == std::vector<std::string>{"p.step", "p.exp_avg", "p.exp_avg_absmax"});
  CHECK(optimizer.state_bytes() == 512'000 + 512'000 / 256 * 4);
}

TEST_CASE("lion_8bit makes the optimizer with the defaults of bitsandbytes, and checks its options") {
  const etude::Lion8bitOptions options;
  CHECK(options.lr == 1e-4);
  CHECK(options.beta1 == 0.9);
  CHECK(options.beta2 == 0.99);
  CHECK(options.weight_decay == 0);
  CHECK(options.min_8bit_size == 4096);
  const torch::Tensor parameter = torch::zeros({300}).set_requires_grad(true);
  const std::vector<etude::ParameterGroup> groups{{{{"p", parameter}}, {}, {}}};
  etude::TrainingArguments args;
  args.optim = etude::OptimizerNames::lion_8bit;
  args.optim_args = "min_8bit_size=100";
  const auto optimizer = etude::make_optimizer(args, groups);
  CHECK(optimizer->type() == "Lion8bit");
  parameter.sum().backward();
  optimizer->step();
  CHECK((entry(optimizer->state(), "p.exp_avg").scalar_type() == at::kByte));
  CHECK_THROWS_WITH_AS(etude::Lion8bit(groups, {.beta2 = 1, .min_8bit_size = -1}),
                       "beta2 is 1: must be at least 0 and below 1\nmin_8bit_size is -1: must be at least 0",
                       etude::ArgumentError);
}

TEST_CASE("a group's momentum takes the place of beta1 over 8-bit moments too") {
  const auto after_a_step = [](std::optional<double> momentum) {
    const torch::Tensor parameter = torch::zeros({300}).set_requires_grad(true);
    etude::Lion8bit optimizer({{{{"p", parameter}}, {}, {}}},
                              {.lr = 1, .beta1 = 0.9, .beta2 = 0, .min_8bit_size = 256});
    for (const double gradient : {1.0, -2.0}) {
      optimizer.zero_grad();
      parameter.mutable_grad() = torch::full({300}, gradient);
      optimizer.param_groups()[0].momentum = momentum;
      optimizer.step();
    }
    return parameter[0].item<double>();
  };
  CHECK(after_a_step(std::nullopt) == -2);  // the sign of 0.9 * 1 - 0.1 * 2
  CHECK(after_a_step(0.5) == 0);            // the sign of 0.5 * 1 - 0.5 * 2
}

}  // namespace optim_lion_8bit_test
