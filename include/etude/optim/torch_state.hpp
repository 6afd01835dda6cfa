#pragma once

#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "etude/base/error.hpp"
#include "etude/libtorch/optim.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/torch_kinds.hpp"

/// The per-parameter state of LibTorch's optimizers as named tensors.
namespace etude::inline v0::detail {

/// Calls `use` with the options cast to their actual type. Throws CheckpointError unless they belong to a
/// LibTorch optimizer with per-parameter state.
template <typename Use>
void with_kind_of_state(torch::optim::OptimizerOptions& options, Use use) {
  bool used = false;
  with_known_options(options, [&]<typename Options>(Options& known) {
    if constexpr (requires { typename TorchKind<Options>::State; }) {
      use(known);
      used = true;
    }
  });
  if (!used) {
    throw CheckpointError(
        "the state of an optimizer that is not LibTorch's own can't be stored; derive from etude::Optimizer");
  }
}

inline std::vector<std::string> torch_moment_names(torch::optim::OptimizerOptions& options) {
  std::vector<std::string> names;
  with_kind_of_state(options, [&]<typename Options>(Options& known) {
    typename TorchKind<Options>::State state;
    TorchKind<Options>::moments(known, state, [&](const char* name, auto&) { names.push_back(name); });
  });
  return names;
}

/// A parameter's moments, initialized if they don't exist yet.
inline NamedTensors torch_moments(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                                  torch::optim::OptimizerOptions& options) {
  NamedTensors moments;
  with_kind_of_state(options, [&]<typename Options>(Options& known) {
    using State = typename TorchKind<Options>::State;
    auto* state = dynamic_cast<State*>(libtorch::optimizer_state(optimizer, parameter));
    if (!state) {
      auto fresh = std::make_unique<State>();
      state = fresh.get();
      libtorch::set_optimizer_state(optimizer, parameter, std::move(fresh));
    }
    TorchKind<Options>::moments(known, *state, [&](const char* name, torch::Tensor& moment) {
      if (!moment.defined()) moment = at::zeros_like(parameter.detach());
      moments.emplace_back(name, moment.is_sparse() ? moment.to_dense() : moment);  // SGD's may be sparse
    });
  });
  return moments;
}

/// A state with copies of these moments, in the order of their names.
inline std::unique_ptr<torch::optim::OptimizerParamState> torch_state(
    const torch::Tensor& parameter, torch::optim::OptimizerOptions& options,
    const std::vector<torch::Tensor>& moments, std::int64_t steps) {
  std::unique_ptr<torch::optim::OptimizerParamState> result;
  with_kind_of_state(options, [&]<typename Options>(Options& known) {
    using Kind = TorchKind<Options>;
    auto state = std::make_unique<typename Kind::State>();
    auto given = moments.begin();
    Kind::moments(known, *state, [&](const char*, torch::Tensor& moment) {
      moment = at::empty_like(parameter.detach()).copy_(*given++);
    });
    if (std::int64_t* count = Kind::steps(*state)) *count = steps;
    result = std::move(state);
  });
  return result;
}

/// The state before the first step: none, except for Adagrad, which requires one.
inline std::unique_ptr<torch::optim::OptimizerParamState> initial_torch_state(
    const torch::Tensor& parameter, const torch::optim::OptimizerOptions& options) {
  const auto* adagrad = dynamic_cast<const torch::optim::AdagradOptions*>(&options);
  if (!adagrad) return nullptr;
  auto state = std::make_unique<torch::optim::AdagradParamState>();
  state->step(0);
  state->sum(at::full_like(parameter.detach(), adagrad->initial_accumulator_value()));
  return state;
}

}  // namespace etude::inline v0::detail
