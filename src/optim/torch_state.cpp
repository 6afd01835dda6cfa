#include "etude/optim/torch_state.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace etude::inline v0::detail {

std::vector<std::string> torch_moment_names(torch::optim::OptimizerOptions& options) {
  std::vector<std::string> names;
  with_kind_of_state(options, [&]<typename Options>(Options& known) {
    typename TorchKind<Options>::State state;
    TorchKind<Options>::moments(known, state, [&](const char* name, auto&) { names.push_back(name); });
  });
  return names;
}

NamedTensors torch_moments(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
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

std::unique_ptr<torch::optim::OptimizerParamState> torch_state(const torch::Tensor& parameter,
                                                               torch::optim::OptimizerOptions& options,
                                                               const std::vector<torch::Tensor>& moments,
                                                               std::int64_t steps) {
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

std::unique_ptr<torch::optim::OptimizerParamState> initial_torch_state(
    const torch::Tensor& parameter, const torch::optim::OptimizerOptions& options) {
  const auto* adagrad = dynamic_cast<const torch::optim::AdagradOptions*>(&options);
  if (!adagrad) return nullptr;
  auto state = std::make_unique<torch::optim::AdagradParamState>();
  state->step(0);
  state->sum(at::full_like(parameter.detach(), adagrad->initial_accumulator_value()));
  return state;
}

}  // namespace etude::inline v0::detail
