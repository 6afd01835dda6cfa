#pragma once

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "etude/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/optimizer.hpp"

/// The state of LibTorch's optimizers as named tensors, under the names that ours have.
namespace etude::detail {

/// What a torch optimizer keeps of one parameter: its moments, and where it counts its steps.
struct TorchState {
  NamedTensors moments;
  std::function<void(std::int64_t)> set_step = [](std::int64_t) {};
};

template <typename State>
State& state_or_new(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  if (auto* state = dynamic_cast<State*>(libtorch::optimizer_state(optimizer, parameter))) return *state;
  libtorch::set_optimizer_state(optimizer, parameter, std::make_unique<State>());
  return dynamic_cast<State&>(*libtorch::optimizer_state(optimizer, parameter));
}

inline torch::Tensor zeros_for(const torch::Tensor& parameter) { return at::zeros_like(parameter.detach()); }

template <typename State>
TorchState adam_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter, bool amsgrad) {
  auto& state = state_or_new<State>(optimizer, parameter);
  if (!state.exp_avg().defined()) state.exp_avg(zeros_for(parameter)).exp_avg_sq(zeros_for(parameter));
  if (amsgrad && !state.max_exp_avg_sq().defined()) state.max_exp_avg_sq(zeros_for(parameter));
  TorchState result{{{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}},
                    [&state](std::int64_t steps) { state.step(steps); }};
  if (amsgrad) result.moments.emplace_back("max_exp_avg_sq", state.max_exp_avg_sq());
  return result;
}

inline TorchState sgd_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                            double momentum) {
  if (momentum == 0) return {};
  auto& state = state_or_new<torch::optim::SGDParamState>(optimizer, parameter);
  if (!state.momentum_buffer().defined()) state.momentum_buffer(zeros_for(parameter));
  return {{{"momentum_buffer", state.momentum_buffer()}}};
}

inline TorchState rmsprop_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                                const torch::optim::RMSpropOptions& options) {
  auto& state = state_or_new<torch::optim::RMSpropParamState>(optimizer, parameter);
  if (!state.square_avg().defined()) state.square_avg(zeros_for(parameter));
  TorchState result{{{"square_avg", state.square_avg()}},
                    [&state](std::int64_t steps) { state.step(steps); }};
  if (options.momentum() > 0) {
    if (!state.momentum_buffer().defined()) state.momentum_buffer(zeros_for(parameter));
    result.moments.emplace_back("momentum_buffer", state.momentum_buffer());
  }
  if (options.centered()) {
    if (!state.grad_avg().defined()) state.grad_avg(zeros_for(parameter));
    result.moments.emplace_back("grad_avg", state.grad_avg());
  }
  return result;
}

inline TorchState adagrad_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                                double initial_accumulator_value) {
  auto& state = state_or_new<torch::optim::AdagradParamState>(optimizer, parameter);
  if (!state.sum().defined()) state.sum(zeros_for(parameter).fill_(initial_accumulator_value));
  return {{{"sum", state.sum()}}, [&state](std::int64_t steps) { state.step(steps); }};
}

/// The state of one parameter, made as it is before the first step if there is none.
/// Throws CheckpointError for an optimizer that isn't LibTorch's.
inline TorchState torch_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                              const torch::optim::OptimizerOptions& options) {
  namespace optim = torch::optim;
  if (const auto* adamw = dynamic_cast<const optim::AdamWOptions*>(&options)) {
    return adam_state<optim::AdamWParamState>(optimizer, parameter, adamw->amsgrad());
  }
  if (const auto* adam = dynamic_cast<const optim::AdamOptions*>(&options)) {
    return adam_state<optim::AdamParamState>(optimizer, parameter, adam->amsgrad());
  }
  if (const auto* sgd = dynamic_cast<const optim::SGDOptions*>(&options)) {
    return sgd_state(optimizer, parameter, sgd->momentum());
  }
  if (const auto* rmsprop = dynamic_cast<const optim::RMSpropOptions*>(&options)) {
    return rmsprop_state(optimizer, parameter, *rmsprop);
  }
  if (const auto* adagrad = dynamic_cast<const optim::AdagradOptions*>(&options)) {
    return adagrad_state(optimizer, parameter, adagrad->initial_accumulator_value());
  }
  throw CheckpointError(
      "the state of an optimizer that is not LibTorch's own can't be stored; derive from etude::Optimizer");
}

/// LBFGS has one state for all parameters together: `lbfgs.<what>`. Empty before the first step.
inline NamedTensors lbfgs_state(torch::optim::Optimizer& optimizer) {
  const torch::Tensor& first = optimizer.param_groups().front().params().front();
  auto* state = dynamic_cast<torch::optim::LBFGSParamState*>(libtorch::optimizer_state(optimizer, first));
  if (!state || !state->d().defined()) return {};
  const auto stacked = [](const std::deque<torch::Tensor>& tensors) {
    return at::stack(std::vector<torch::Tensor>(tensors.begin(), tensors.end()));
  };
  NamedTensors result{
      {"lbfgs.numbers", torch::tensor({static_cast<double>(state->func_evals()),
                                       static_cast<double>(state->n_iter()), state->t(), state->prev_loss()},
                                      at::kDouble)},
      {"lbfgs.d", state->d()},
      {"lbfgs.H_diag", state->H_diag()},
      {"lbfgs.prev_flat_grad", state->prev_flat_grad()}};
  if (!state->old_dirs().empty()) {
    result.emplace_back("lbfgs.old_dirs", stacked(state->old_dirs()));
    result.emplace_back("lbfgs.old_stps", stacked(state->old_stps()));
    result.emplace_back("lbfgs.ro", stacked(state->ro()));
  }
  return result;
}

inline void load_lbfgs_state(torch::optim::Optimizer& optimizer, const NamedTensors& given) {
  const torch::Tensor& first = optimizer.param_groups().front().params().front();
  auto state = std::make_unique<torch::optim::LBFGSParamState>();
  if (given.empty()) return libtorch::set_optimizer_state(optimizer, first, std::move(state));
  std::int64_t elements = 0;
  for (const torch::Tensor& parameter : optimizer.param_groups().front().params())
    elements += parameter.numel();

  const std::map<std::string, torch::Tensor> by_name(given.begin(), given.end());
  const auto take = [&](const std::string& name, const std::vector<std::int64_t>& sizes,
                        bool on_host = false) {
    const auto found = by_name.find("lbfgs." + name);
    if (found == by_name.end())
      throw CheckpointError(fmt::format("the optimizer state has no 'lbfgs.{}'", name));
    if (found->second.sizes() != sizes) {
      throw CheckpointError(fmt::format("the optimizer state 'lbfgs.{}' has sizes {}, expected {}", name,
                                        found->second.sizes().vec(), sizes));
    }
    return on_host ? found->second.to(at::kCPU, at::kDouble) : found->second.to(first.options()).clone();
  };
  const auto unstacked = [](const torch::Tensor& tensor) {
    const auto rows = tensor.unbind();
    return std::deque<torch::Tensor>(rows.begin(), rows.end());
  };
  const torch::Tensor numbers = take("numbers", {4}, /*on_host=*/true);
  const double* number = numbers.data_ptr<double>();
  state->func_evals(static_cast<std::int64_t>(number[0])).n_iter(static_cast<std::int64_t>(number[1]));
  state->t(number[2]).prev_loss(number[3]);
  state->d(take("d", {elements})).H_diag(take("H_diag", {}));
  state->prev_flat_grad(take("prev_flat_grad", {elements}));
  if (const auto directions = by_name.find("lbfgs.old_dirs"); directions != by_name.end()) {
    const std::int64_t history = directions->second.dim() == 2 ? directions->second.size(0) : 0;
    state->old_dirs(unstacked(take("old_dirs", {history, elements})));
    state->old_stps(unstacked(take("old_stps", {history, elements})));
    state->ro(unstacked(take("ro", {history})));
  }
  libtorch::set_optimizer_state(optimizer, first, std::move(state));
}

}  // namespace etude::detail
