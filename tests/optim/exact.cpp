#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/optim/create.hpp"

/// Tests the optimizers whose updates are bit-identical to torch::optim's.
namespace optim_exact_test {

constexpr double rate = 0.01, decay = 0.1;

using Groups = std::vector<torch::optim::OptimizerParamGroup>;

/// The arguments of an Etude optimizer, and torch's optimizer with the same options.
struct Kind {
  etude::OptimizerNames optim;
  std::string optim_args;
  std::function<std::shared_ptr<torch::optim::Optimizer>(Groups groups, double weight_decay)> make;
};

/// `set` sets all options except the learning rate and the weight decay.
template <class Optimizer, class Options, class Set>
Kind kind(etude::OptimizerNames optim, std::string optim_args, Set set) {
  return {optim, std::move(optim_args), [=](const Groups& groups, double weight_decay) {
            Groups with_options;
            for (std::size_t i = 0; i < groups.size(); ++i) {
              Options options(rate);
              options.weight_decay(i == 0 ? weight_decay : 0);
              set(options);
              with_options.emplace_back(groups[i].params(), std::make_unique<Options>(options));
            }
            Options defaults(rate);
            set(defaults);
            return std::make_shared<Optimizer>(with_options, defaults);
          }};
}

std::vector<Kind> kinds() {
  using enum etude::OptimizerNames;
  namespace torchs = torch::optim;
  const auto nothing = [](auto&) {};
  std::vector<Kind> result{
      kind<torchs::AdamW, torchs::AdamWOptions>(adamw_torch, "", nothing),
      kind<torchs::AdamW, torchs::AdamWOptions>(adamw_torch, "amsgrad=true,beta2=0.99",
                                                [](auto& options) {
                                                  options.amsgrad(true).betas({0.9, 0.99});
                                                }),
      kind<torchs::Adam, torchs::AdamOptions>(adam, "fused=false", nothing),
      kind<torchs::Adam, torchs::AdamOptions>(adam, "fused=false,amsgrad=true",
                                              [](auto& options) { options.amsgrad(true); }),
      kind<torchs::SGD, torchs::SGDOptions>(sgd, "fused=false", nothing),
      kind<torchs::SGD, torchs::SGDOptions>(sgd, "fused=false,momentum=0.9,dampening=0.3",
                                            [](auto& options) { options.momentum(0.9).dampening(0.3); }),
      kind<torchs::SGD, torchs::SGDOptions>(sgd, "fused=false,momentum=0.9,nesterov=true",
                                            [](auto& options) { options.momentum(0.9).nesterov(true); }),
      kind<torchs::Adagrad, torchs::AdagradOptions>(
          adagrad, "fused=false,lr_decay=0.01,initial_accumulator_value=0.1",
          [](auto& options) { options.lr_decay(0.01).initial_accumulator_value(0.1); })};
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.9}) {
      result.push_back(kind<torchs::RMSprop, torchs::RMSpropOptions>(
          rmsprop,
          std::string("fused=false,momentum=") + (momentum == 0 ? "0" : "0.9") +
              ",centered=" + (centered ? "true" : "false"),
          [=](auto& options) { options.momentum(momentum).centered(centered); }));
    }
  }
  return result;
}

/// Parameters whose sizes leave every remainder of a vector's length, one long enough to be divided among
/// threads, one that isn't in row-major order, one that seldom gets a gradient, and one that never does.
etude::NamedTensors parameters(at::ScalarType type) {
  torch::manual_seed(1);
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes{
      {"one.bias", {1}},       {"seven.weight", {7}},           {"odd.weight", {3, 11}},
      {"odd.bias", {33}},      {"images.weight", {5, 3, 3, 3}}, {"long.weight", {33'001}},
      {"seldom.weight", {13}}, {"never.weight", {9}},           {"fifteen.bias", {15}}};
  etude::NamedTensors result;
  for (const auto& [name, sizes] : shapes) {
    auto values = torch::randn(sizes, torch::TensorOptions().dtype(at::kDouble)).to(type);
    if (name == "images.weight") values = values.contiguous(at::MemoryFormat::ChannelsLast);
    result.emplace_back(name, values.set_requires_grad(true));
  }
  return result;
}

etude::NamedTensors copies(const etude::NamedTensors& tensors) {
  etude::NamedTensors result;
  for (const auto& [name, tensor] : tensors)
    result.emplace_back(name, tensor.detach().clone().set_requires_grad(tensor.requires_grad()));
  return result;
}

/// Two groups: parameters with weight decay, and the biases.
Groups groups_of(const etude::NamedTensors& all) {
  std::vector<torch::Tensor> weights, biases;
  for (const auto& [name, tensor] : all) (name.ends_with("bias") ? biases : weights).push_back(tensor);
  return {torch::optim::OptimizerParamGroup(weights), torch::optim::OptimizerParamGroup(biases)};
}

/// A noisy loss with its minimum at 1.
void backward(const etude::NamedTensors& all, std::int64_t step) {
  torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  torch::Tensor loss = torch::zeros({}, all.front().second.options());
  for (const auto& [name, tensor] : all) {
    const auto noise = torch::randn_like(tensor.detach());
    if (name == "never.weight" || (name == "seldom.weight" && step % 3 != 1)) continue;
    loss = loss + ((tensor - 1).square() * 0.15 + tensor * noise).sum();
  }
  loss.backward();
}

etude::TrainingArguments arguments(const Kind& kind) {
  etude::TrainingArguments args;
  args.optim = kind.optim;
  args.optim_args = kind.optim_args;
  args.learning_rate = rate;
  args.weight_decay = decay;
  return args;
}

std::string first_difference(const etude::NamedTensors& ours, const etude::NamedTensors& theirs) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (!torch::equal(ours[i].second, theirs[i].second)) return ours[i].first;
  return "";
}

TEST_CASE(
    "optimizers without fused kernels are bit-identical to torch::optim, and so is a run resumed midway") {
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      if (threads == 2 && type == at::kDouble) continue;
      for (const Kind& kind : kinds()) {
        CAPTURE(threads);
        CAPTURE(type);
        CAPTURE(kind.optim);
        CAPTURE(kind.optim_args);
        auto ours = parameters(type);
        if (threads == 1) std::erase_if(ours, [](const auto& named) { return named.first == "long.weight"; });
        const auto theirs = copies(ours);
        const auto reference = kind.make(groups_of(theirs), decay);
        auto optimizer = etude::make_optimizer(arguments(kind), ours);
        const std::int64_t steps = threads == 1 ? 200 : 20;
        for (std::int64_t step = 0; step < steps; ++step) {
          if (step == steps / 2) {
            etude::NamedTensors state;
            for (const auto& [name, tensor] : optimizer->state()) state.emplace_back(name, tensor.clone());
            const auto resumed = copies(ours);
            optimizer = etude::make_optimizer(arguments(kind), ours = resumed);
            optimizer->load_state(state);
          }
          const double now = rate * (step < steps * 3 / 4 ? 1 : 0.1);
          for (auto& group : optimizer->param_groups()) group.lr = now;
          for (auto& group : reference->param_groups()) group.options().set_lr(now);
          optimizer->zero_grad();
          reference->zero_grad();
          backward(ours, step);
          backward(theirs, step);
          optimizer->step();
          reference->step();
          CAPTURE(step);
          REQUIRE(first_difference(ours, theirs) == "");
        }
      }
    }
  }
  at::set_num_threads(1);
}

TEST_CASE("the state of an exact optimizer is that of the default one, in both directions") {
  using enum etude::OptimizerNames;
  for (const auto& [optim, optim_args, fused_optim] : {std::tuple(adamw_torch, "", adamw_torch_fused),
                                                       {adam, "fused=false", adam},
                                                       {sgd, "fused=false", sgd},
                                                       {adagrad, "fused=false", adagrad},
                                                       {rmsprop, "fused=false", rmsprop}}) {
    const auto name = optim;  // Clang 15 can't capture a structured binding
    CAPTURE(name);
    const Kind exact{name, optim_args, {}}, fused{fused_optim, "", {}};
    for (const auto& [from, to] : {std::pair(exact, fused), {fused, exact}}) {
      const auto first = parameters(at::kFloat);
      const auto trained = etude::make_optimizer(arguments(from), first);
      for (std::int64_t step = 0; step < 5; ++step) {
        trained->zero_grad();
        backward(first, step);
        trained->step();
      }
      const auto second = copies(first);
      const auto loaded = etude::make_optimizer(arguments(to), second);
      loaded->load_state(trained->state());
      const auto saved = trained->state(), read = loaded->state();
      REQUIRE(saved.size() == read.size());
      REQUIRE(!saved.empty());
      CHECK(first_difference(read, saved) == "");
    }
  }
}

TEST_CASE("L-BFGS takes the parameters in the model's order, and is bit-identical to torch::optim::LBFGS") {
  // Sums over all parameters depend on their order: weights and biases alternate.
  for (const auto& search : {"none", "strong_wolfe"}) {
    CAPTURE(search);
    auto ours = parameters(at::kFloat);
    // LibTorch's LBFGS can't handle tensors that aren't contiguous.
    std::erase_if(ours, [](const auto& named) { return named.first == "images.weight"; });
    const auto theirs = copies(ours);
    auto args =
        arguments({etude::OptimizerNames::lbfgs, std::string("max_iter=4,line_search_fn=") + search, {}});
    args.learning_rate = 0.3;
    args.weight_decay = 0;
    const auto optimizer = etude::make_optimizer(args, ours);
    std::vector<torch::Tensor> list;
    for (const auto& [name, tensor] : theirs) list.push_back(tensor);
    auto options = torch::optim::LBFGSOptions(0.3).max_iter(4).max_eval(5);
    if (search == std::string("strong_wolfe")) options.line_search_fn("strong_wolfe");
    torch::optim::LBFGS reference(list, options);
    const auto loss_of = [](const etude::NamedTensors& all) {
      torch::Tensor loss = torch::zeros({});
      for (const auto& [name, tensor] : all)
        if (name != "never.weight") loss = loss + (tensor - 1).square().square().mean() + tensor.sin().mean();
      loss.backward();
      return loss;
    };
    for (int step = 0; step < 12; ++step) {
      CAPTURE(step);
      const auto our_loss = optimizer->step([&] {
        optimizer->zero_grad();
        return loss_of(ours);
      });
      const auto their_loss = reference.step([&] {
        reference.zero_grad();
        return loss_of(theirs);
      });
      REQUIRE(torch::equal(our_loss, their_loss));
      REQUIRE(first_difference(ours, theirs) == "");
    }
  }
}

}  // namespace optim_exact_test
