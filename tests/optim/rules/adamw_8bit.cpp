#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "etude/optim/block_quantization.hpp"
#include "etude/optim/cpu_kernels.hpp"
#include "etude/optim/rules/adam.hpp"
#include "etude/optim/rules/adamw_8bit.hpp"

#include "common/fault_of.hpp"
#include "common/folder.hpp"
#include "common/printed.hpp"
#include "common/toy.hpp"
#include "etude/base/error.hpp"
#include "etude/trainer.hpp"
#include "optim/compare.hpp"
#include "optim/saved_state.hpp"

namespace optim_adamw_8bit_test {

using etude::detail::DynamicMap;

using saved_state::clones;
using saved_state::entry;

TEST_CASE("the values of the codes are those of bitsandbytes 0.50.2") {
  const auto check = [](const DynamicMap& map, std::vector<std::pair<std::size_t, double>> expected) {
    CHECK(std::ranges::is_sorted(map.values()));
    for (const auto& [code, value] : expected)
      CHECK(static_cast<double>(map.values()[code]) == doctest::Approx(value).epsilon(2e-7));
  };
  check(DynamicMap::with_sign(), {{0, -0.99296874},
                                  {1, -0.97890627},
                                  {125, -3.25e-6},
                                  {126, -5.5e-7},
                                  {127, 0},
                                  {128, 5.5e-7},
                                  {129, 3.25e-6},
                                  {130, 7.75e-6},
                                  {131, 2.125e-5},
                                  {254, 0.99296874},
                                  {255, 1}});
  check(DynamicMap::without_sign(), {{0, 0},
                                     {1, 3.25e-7},
                                     {2, 7.75e-7},
                                     {3, 2.125e-6},
                                     {4, 4.375e-6},
                                     {253, 0.98945314},
                                     {254, 0.99648434},
                                     {255, 1}});
}

TEST_CASE("a number gets the code of the nearest value, and only 0 that of 0 if there is no sign") {
  for (const bool has_sign : {false, true}) {
    const DynamicMap map(has_sign);
    const auto& values = map.values();
    const auto nearest = [&](double x) {
      std::size_t best = !has_sign && x > 0 ? 1 : 0;
      for (std::size_t i = best; i < 256; ++i)
        if (std::abs(static_cast<double>(values[i]) - x) < std::abs(static_cast<double>(values[best]) - x))
          best = i;
      return best;
    };
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      wrong += map.code(values[i]) != i;
      if (i == 255 || (!has_sign && i == 0)) continue;
      const float halfway = (values[i] + values[i + 1]) / 2;
      const auto step = 4 * std::abs(halfway) * std::numeric_limits<float>::epsilon();
      wrong += map.code(halfway - step) != i;
      wrong += map.code(halfway + step) != i + 1;
    }
    torch::manual_seed(1);
    const torch::Tensor exponents = -9 * torch::rand({20'000}, at::kDouble);
    for (std::int64_t i = 0; i < exponents.numel(); ++i) {
      const double sign = has_sign && i % 2 ? -1 : 1;
      const auto x = static_cast<float>(sign * std::pow(10, exponents.data_ptr<double>()[i]));
      wrong += map.code(x) != nearest(static_cast<double>(x));
    }
    CHECK(wrong == 0);
    CHECK(values[map.code(0.f)] == 0);
    CHECK(values[map.code(-0.f)] == 0);
    CHECK(map.code(1e-30f) == (has_sign ? 127 : 1));
    map.code(NAN);  // must stay within the table
    map.code(-INFINITY);
  }
}

/// Whole numbers divided by a power of two, so that any program computes the same float32 numbers.
torch::Tensor made_gradient(std::int64_t size, std::int64_t step) {
  const torch::Tensor i = torch::arange(size);
  const torch::Tensor numbers = (i * 7919 + step * 104729).remainder(2003).sub(1001);
  return numbers.to(at::kFloat).div(1001).mul(torch::pow(2, i.floor_divide(1000)).to(at::kFloat));
}

TEST_CASE("five steps equal those of bitsandbytes 0.50.2, by the kernel and by operators") {
  for (const auto type : {at::kFloat, at::kDouble}) {
    CAPTURE(type);
    const torch::Tensor parameter =
        (torch::arange(5000) * 31).remainder(97).sub(48).to(type).div(64).set_requires_grad(true);
    etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}},
                               {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1});
    for (std::int64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      parameter.mutable_grad() = made_gradient(5000, step).to(type);
      optimizer.step();
    }
    const auto state = optimizer.state();
    const auto codes = entry(state, "p.exp_avg"), squares = entry(state, "p.exp_avg_sq"),
               absmax = entry(state, "p.exp_avg_absmax"), square_absmax = entry(state, "p.exp_avg_sq_absmax");
    struct Expected {
      std::int64_t index;
      double value;
      int code, square_code;
    };
    for (const auto& [i, value, code, square_code] : {Expected{0, -0.71935761, 34, 254},
                                                      {1, -0.280804902, 61, 248},
                                                      {255, 0.0291621052, 5, 225},
                                                      {256, 0.497850746, 181, 234},
                                                      {1234, -0.219325662, 249, 229},
                                                      {2500, 0.702010334, 51, 247},
                                                      {4095, 0.320267826, 30, 253},
                                                      {4999, 0.176962376, 40, 251}}) {
      const auto index = i;  // Clang 15 can't capture a structured binding
      CAPTURE(index);
      CHECK(parameter[i].item<double>() == doctest::Approx(value).epsilon(1e-6));
      CHECK(codes[i].item<int>() == code);
      CHECK(squares[i].item<int>() == square_code);
    }
    CHECK(absmax.sizes() == std::vector<std::int64_t>{20});
    CHECK(absmax[0].item<double>() == doctest::Approx(0.260582).epsilon(1e-6));
    CHECK(absmax[19].item<double>() == doctest::Approx(4.12541533).epsilon(1e-6));
    CHECK(square_absmax[7].item<double>() == doctest::Approx(0.348727703).epsilon(1e-6));
  }
}

TEST_CASE("with our kernels switched off, float32 is updated by operators from flat gradients") {
  const auto train = [](bool uses_kernels) {
    etude::detail::uses_cpu_kernels() = uses_kernels;
    const torch::Tensor parameter = torch::linspace(-1, 1, 5000).set_requires_grad(true);
    etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}}, {.lr = 0.01});
    for (std::int64_t step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      CHECK(parameter.grad().defined() == (!uses_kernels && step > 0));
      parameter.mutable_grad() = made_gradient(5000, step);
      optimizer.clip_grad_norm_in_step(1);
      optimizer.step();
    }
    etude::detail::uses_cpu_kernels() = true;
    return parameter.detach();
  };
  CHECK((train(true) - train(false)).abs().mean().item<double>() < 1e-5);
}

TEST_CASE("small parameters keep whole moments: 1,000 steps equal those of torch's AdamW") {
  COMPARE_WITH_TORCH(torch::optim::AdamWOptions,
                     beside_torch::ours<etude::AdamW8bit>(etude::AdamW8bitOptions{
                         .lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .weight_decay = 0.1}),
                     beside_torch::theirs<torch::optim::AdamW>(
                         torch::optim::AdamWOptions(0.01).betas({0.8, 0.99}).weight_decay(0.1)),
                     beside_torch::Tolerance());
}

TEST_CASE("by default a parameter of 4096 elements has 8-bit moments, and one of 4095 has float32 ones") {
  const torch::Tensor large = torch::zeros({64, 64}).set_requires_grad(true),
                      small = torch::zeros({4095}).set_requires_grad(true);
  etude::AdamW8bit optimizer({{{{"large", large}, {"small", small}}, {}, {}}});
  (large.sum() + small.sum()).backward();
  optimizer.step();
  const auto state = optimizer.state();
  CHECK(state.size() == 5 + 3);
  CHECK((entry(state, "large.exp_avg").scalar_type() == at::kByte));
  CHECK((entry(state, "large.exp_avg_sq").scalar_type() == at::kByte));
  CHECK((entry(state, "small.exp_avg").scalar_type() == at::kFloat));
  CHECK((entry(state, "small.exp_avg_sq").scalar_type() == at::kFloat));
}

TEST_CASE("the state takes 2 bytes and 8/256 an element") {
  const torch::Tensor parameter = torch::zeros({512, 1000}).set_requires_grad(true);
  etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}});
  parameter.sum().backward();
  optimizer.step();
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : optimizer.state())
    if (name != "p.step") bytes += tensor.nbytes();
  CHECK(bytes == 512'000 * 2 + 512'000 / 256 * 8);
}

/// A parameter of several blocks, the last one incomplete, in either memory order.
torch::Tensor made_parameter(at::ScalarType type, bool channels_last) {
  torch::manual_seed(4);
  torch::Tensor values = torch::randn({30, 7, 5, 5});
  if (channels_last) values = values.contiguous(at::MemoryFormat::ChannelsLast);
  return values.to(type).set_requires_grad(true);
}

/// Trains on the gradients of steps [from, to), whose magnitudes differ by row.
void train(etude::Optimizer& optimizer, const torch::Tensor& parameter, std::int64_t from, std::int64_t to) {
  for (std::int64_t step = from; step < to; ++step) {
    torch::manual_seed(static_cast<std::uint64_t>(step));
    const torch::Tensor gradient =
        torch::randn({30, 7, 5, 5}) * torch::logspace(-3, 1, 30).view({30, 1, 1, 1});
    optimizer.zero_grad();
    parameter.mutable_grad() = torch::empty_like(parameter.detach()).copy_(gradient);
    optimizer.clip_grad_norm_in_step(1000);
    optimizer.step();
  }
}

TEST_CASE("the order in memory makes no difference, and other types only that of their rounding") {
  const auto trained = [](at::ScalarType type, bool channels_last) {
    const torch::Tensor parameter = made_parameter(type, channels_last);
    etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}}, {.min_8bit_size = 0});
    train(optimizer, parameter, 0, 20);
    return std::pair(parameter.detach().contiguous(), clones(optimizer.state()));
  };
  const auto [expected, state] = trained(at::kFloat, false);
  const auto [other_order, other_state] = trained(at::kFloat, true);
  CHECK(torch::equal(other_order, expected));
  for (const auto& [name, tensor] : state) CHECK(torch::equal(entry(other_state, name), tensor));
  for (const bool channels_last : {false, true}) {
    CHECK(torch::allclose(trained(at::kDouble, channels_last).first.to(at::kFloat), expected, 0, 2e-3));
    CHECK(torch::allclose(trained(at::kBFloat16, channels_last).first.to(at::kFloat), expected, 0, 0.04));
  }
}

TEST_CASE("many threads give the result of one") {
  const auto trained = [](int threads) {
    at::set_num_threads(threads);
    torch::manual_seed(4);
    const torch::Tensor parameter = torch::randn({500, 301}).set_requires_grad(true);
    etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      parameter.mutable_grad() = torch::randn({500, 301});
      optimizer.step();
    }
    at::set_num_threads(1);
    return std::pair(parameter.detach(), clones(optimizer.state()));
  };
  const auto [expected, state] = trained(1);
  const auto [parameter, own] = trained(4);
  CHECK(torch::equal(parameter, expected));
  for (const auto& [name, tensor] : state) CHECK(torch::equal(entry(own, name), tensor));
}

TEST_CASE("a run that is stored and loaded midway equals one that isn't, to the bit") {
  for (const std::int64_t min_8bit_size : {0, 1'000'000})
    for (const bool changes_order : {false, true}) {
      const torch::Tensor whole = made_parameter(at::kFloat, false);
      etude::AdamW8bit uninterrupted({{{{"p", whole}}, {}, {}}}, {.min_8bit_size = min_8bit_size});
      train(uninterrupted, whole, 0, 20);
      const torch::Tensor parameter = made_parameter(at::kFloat, false);
      etude::NamedTensors state;
      {
        etude::AdamW8bit first({{{{"p", parameter}}, {}, {}}}, {.min_8bit_size = min_8bit_size});
        train(first, parameter, 0, 10);
        state = clones(first.state());
      }
      const torch::Tensor again =
          parameter.detach()
              .clone(changes_order ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous)
              .set_requires_grad(true);
      etude::AdamW8bit second({{{{"p", again}}, {}, {}}}, {.min_8bit_size = min_8bit_size});
      second.load_state(state);
      train(second, again, 10, 20);
      CHECK(torch::equal(again, whole));
    }
}

TEST_CASE("a state that doesn't fit is refused by name: AdamW's, and one of other sizes") {
  const torch::Tensor parameter = made_parameter(at::kFloat, false);
  etude::AdamW8bit ours({{{{"p", parameter}}, {}, {}}});
  etude::AdamW plain({{{{"p", parameter.detach().clone().set_requires_grad(true)}}, {}, {}}});
  train(ours, parameter, 0, 1);
  train(plain, plain.flat_parameters().parameter(0), 0, 1);
  const auto refuses = [](etude::Optimizer& optimizer, const etude::NamedTensors& state, const char* text) {
    CHECK_THROWS_WITH_AS(optimizer.load_state(state), doctest::Contains(text), etude::CheckpointError);
  };
  refuses(ours, clones(plain.state()), "'p.exp_avg' is Float [30, 7, 5, 5], expected a Byte tensor");
  refuses(plain, clones(ours.state()),
          "'p.exp_avg' is Byte [30, 7, 5, 5], expected a floating-point tensor [30, 7, 5, 5]");
  etude::NamedTensors state = clones(ours.state());
  for (auto& [name, tensor] : state)
    if (name == "p.exp_avg_sq_absmax") tensor = torch::zeros({20});
  refuses(ours, state, "'p.exp_avg_sq_absmax' is Float [20], expected a floating-point tensor [21]");
  std::erase_if(state, [](const auto& item) { return item.first == "p.exp_avg_absmax"; });
  refuses(ours, state, "'p' has no 'exp_avg_absmax'; was it saved by another optimizer?");
}

/// Throws at a step, after the checkpoint of that step.
struct Kill {
  std::int64_t step = -1;
  void on(const etude::StepBegin& e) const {
    if (e.state.global_step == step) throw std::runtime_error("killed");
  }
};

torch::nn::Linear trained_in_folder(const std::string& folder, etude::OptimizerNames optim,
                                    std::int64_t killed_at, bool resumes,
                                    etude::LogLevel log_level = etude::LogLevel::critical) {
  torch::manual_seed(5);
  torch::nn::Linear model(30, 20);
  auto args = toy::arguments();
  toy::save_to(folder, args);
  args.optim = optim;
  if (optim == etude::OptimizerNames::adamw_8bit) args.optim_args = "min_8bit_size=100";
  args.per_device_train_batch_size = 4;
  args.max_steps = 8;
  args.log_level = log_level;
  etude::Trainer<Kill> trainer({.model = model,
                                .args = args,
                                .loss = torch::nn::MSELoss(),
                                .train_dataset = {torch::randn({16, 30}), torch::randn({16, 20})}},
                               Kill{killed_at});
  const auto train = [&] { trainer.train({.resume_from_checkpoint = resumes}); };
  if (killed_at > 0)
    CHECK_THROWS(train());
  else
    train();
  return model;
}

TEST_CASE("a training that is killed and resumed equals one that isn't, to the bit") {
  using enum etude::OptimizerNames;
  const toy::Folder whole, halves;
  const auto expected = trained_in_folder(whole, adamw_8bit, -1, false);
  trained_in_folder(halves, adamw_8bit, 5, false);
  const auto resumed = trained_in_folder(halves, adamw_8bit, -1, true);
  CHECK(torch::equal(resumed->weight, expected->weight));
  CHECK(torch::equal(resumed->bias, expected->bias));
}

TEST_CASE("a resume with 8 bits in the place of AdamW, or the reverse, starts the optimizer from scratch") {
  using enum etude::OptimizerNames;
  const auto warnings = [](etude::OptimizerNames first, etude::OptimizerNames second) {
    const toy::Folder folder;
    trained_in_folder(folder, first, 5, false);
    return toy::printed([&] { trained_in_folder(folder, second, -1, true, etude::LogLevel::warning); },
                        STDERR_FILENO);
  };
  CHECK(
      toy::contains(warnings(adamw_torch_fused, adamw_8bit),
                    "the optimizer differs and starts from scratch: the optimizer state 'weight.exp_avg' is "
                    "Float [20, 30], expected a Byte tensor [20, 30]"));
  CHECK(
      toy::contains(warnings(adamw_8bit, adamw_torch_fused),
                    "the optimizer differs and starts from scratch: the optimizer state 'weight.exp_avg' is "
                    "Byte [20, 30], expected a floating-point tensor [20, 30]"));
}

TEST_CASE("a gradient far below the others of its block makes no giant step") {
  const torch::Tensor parameter = torch::zeros({256}).set_requires_grad(true);
  etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}},
                             {.lr = 0.01, .weight_decay = 0, .min_8bit_size = 0});
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    torch::Tensor gradient = torch::ones({256});
    gradient[5] = step == 0 ? 1e-4 : 0;
    parameter.mutable_grad() = gradient;
    const double before = parameter[5].item<double>();
    optimizer.step();
    CHECK(std::abs(parameter[5].item<double>() - before) <= 0.011);
  }
}

TEST_CASE("a NaN gradient isn't forgotten") {
  const torch::Tensor parameter = torch::zeros({300}).set_requires_grad(true);
  etude::AdamW8bit optimizer({{{{"p", parameter}}, {}, {}}}, {.min_8bit_size = 0});
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    torch::Tensor gradient = torch::ones({300});
    if (step == 0) gradient[5] = NAN;
    parameter.mutable_grad() = gradient;
    optimizer.step();
  }
  CHECK(parameter[5].isnan().item<bool>());
  CHECK(entry(optimizer.state(), "p.exp_avg_absmax").isnan()[0].item<bool>());
  CHECK(entry(optimizer.state(), "p.exp_avg_sq_absmax").isnan()[0].item<bool>());
  CHECK(parameter.narrow(0, 256, 44).isfinite().all().item<bool>());
}

TEST_CASE("the options have the defaults of bitsandbytes, and are checked") {
  const etude::AdamW8bitOptions options;
  CHECK(options.lr == 1e-3);
  CHECK(options.beta1 == 0.9);
  CHECK(options.beta2 == 0.999);
  CHECK(options.eps == 1e-8);
  CHECK(options.weight_decay == 1e-2);
  CHECK(options.min_8bit_size == 4096);
  const torch::Tensor parameter = torch::zeros({3}).set_requires_grad(true);
  CHECK_THROWS_WITH_AS(etude::AdamW8bit({{{{"p", parameter}}, {}, {}}}, {.beta1 = 1, .min_8bit_size = -1}),
                       "beta1 is 1: must be at least 0 and below 1\nmin_8bit_size is -1: must be at least 0",
                       etude::ArgumentError);
}

/// A decoder of two layers with one attention head each.
struct TransformerImpl : torch::nn::Module {
  static constexpr std::int64_t tokens = 24, width = 64, length = 16;

  TransformerImpl() {
    torch::manual_seed(2);
    embedding = register_module("embedding", torch::nn::Embedding(tokens, width));
    position = register_parameter("position", 0.02 * torch::randn({length, width}));
    for (std::size_t i = 0; i < 2; ++i) {
      const auto layer = [&](const char* name, auto module) {
        return register_module(name + std::to_string(i), module);
      };
      norms.push_back(layer("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}))));
      qkv.push_back(layer("qkv", torch::nn::Linear(width, 3 * width)));
      out.push_back(layer("out", torch::nn::Linear(width, width)));
      up.push_back(layer("up", torch::nn::Linear(width, 4 * width)));
      down.push_back(layer("down", torch::nn::Linear(4 * width, width)));
    }
    head = register_module("head", torch::nn::Linear(width, tokens));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor mask = torch::ones({length, length}, at::kBool).triu(1);
    torch::Tensor h = embedding(x) + position;
    for (std::size_t i = 0; i < 2; ++i) {
      const auto parts = qkv[i](norms[i](h)).chunk(3, -1);
      const auto scores = parts[0].matmul(parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(width));
      h = h + out[i](scores.masked_fill(mask, -1e9).softmax(-1).matmul(parts[2]));
      h = h + down[i](torch::gelu(up[i](h)));
    }
    return head(h);
  }

  torch::nn::Embedding embedding{nullptr};
  torch::Tensor position;
  std::vector<torch::nn::LayerNorm> norms;
  std::vector<torch::nn::Linear> qkv, out, up, down;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Transformer);

/// Sequences in which a token is the sum of the two before it, modulo the number of tokens, with some noise.
torch::Tensor made_sequences(std::int64_t count) {
  torch::Tensor sequences = torch::randint(TransformerImpl::tokens, {count, TransformerImpl::length + 1});
  for (std::int64_t i = 2; i <= TransformerImpl::length; ++i) {
    const torch::Tensor sum =
        (sequences.select(1, i - 1) + sequences.select(1, i - 2)) % TransformerImpl::tokens;
    sequences.select(1, i).copy_(torch::where(torch::rand({count}) < 0.1, sequences.select(1, i), sum));
  }
  return sequences;
}

torch::Tensor loss_of(Transformer& model, std::int64_t count) {
  const auto length = TransformerImpl::length;
  const torch::Tensor sequences = made_sequences(count);
  return torch::cross_entropy_loss(model->forward(sequences.narrow(1, 0, length)).flatten(0, 1),
                                   sequences.narrow(1, 1, length).flatten());
}

template <class Optimizer, class Options>
double trained_loss(const Options& options) {
  Transformer model;
  Optimizer optimizer(etude::parameter_groups(*model, 0.1), options);
  torch::manual_seed(3);
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    loss_of(model, 16).backward();
    optimizer.clip_grad_norm_in_step(1);
    optimizer.step();
  }
  const torch::NoGradGuard no_grad;
  const torch::Tensor loss = loss_of(model, 500);
  return loss.item<double>();
}

TEST_CASE("a small transformer's loss is within 1 % of that with float32 moments") {
  const double whole = trained_loss<etude::AdamW>(etude::AdamWOptions{.lr = 3e-3}),
               in_8bit =
                   trained_loss<etude::AdamW8bit>(etude::AdamW8bitOptions{.lr = 3e-3, .min_8bit_size = 0});
  MESSAGE("float32 ", whole, ", 8 bits ", in_8bit);
  CHECK(whole < 2.2);  // it starts at 3.2
  CHECK(in_8bit == doctest::Approx(whole).epsilon(0.01));
}

}  // namespace optim_adamw_8bit_test
