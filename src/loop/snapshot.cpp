#include "etude/loop/snapshot.hpp"

#include <torch/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "etude/checkpoint/resume.hpp"
#include "etude/libtorch/random_state.hpp"
#include "etude/loop/core.hpp"
#include "etude/model/model.hpp"
#include "etude/optim/optimizer.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

std::vector<NamedTensor> copies_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> copies;
  for (const auto& [name, tensor] : tensors)
    copies.emplace_back(
        name, torch::empty_like(tensor, tensor.options().device(torch::kCPU)).copy_(tensor.detach()));
  return copies;
}

std::vector<NamedTensor> weights_of(const TrainerCore& core) {
  const ShardedUnits::Whole whole(core.sharded_units.get());
  return copies_of(core.model.state_dict());
}

/// The options of an optimizer as they were when it was made.
nlohmann::ordered_json as_made(Optimizer& optimizer) {
  auto options = optimizer.options_state();
  for (auto& changed : options["changed"]) changed = nlohmann::ordered_json::object();
  return options;
}

}  // namespace

LearningRates learning_rates(Optimizer& optimizer) {
  LearningRates rates;
  for (const auto& group : optimizer.param_groups()) rates.emplace_back(group.lr, group.initial_lr);
  return rates;
}

void set_learning_rates(Optimizer& optimizer, const LearningRates& rates) {
  for (std::size_t i = 0; i < rates.size(); ++i)
    optimizer.set_learning_rates(i, rates[i].first, rates[i].second);
}

}  // namespace detail

TrainingSnapshot::TrainingSnapshot(TrainerCore& core)
    : core_(core),
      weights_(detail::weights_of(core)),
      scaler_(core.scaler),
      random_(random_state(core.options.generators)),
      carried_(core.carried.tensors()) {
  for (const auto& each : core.optimizers)
    optimizers_[each.name] = {
        detail::copies_of(gather_state(*each.optimizer, core.ranks.communicator(), /*everywhere=*/true)),
        each.optimizer->options_state(), detail::learning_rates(*each.optimizer)};
}

void TrainingSnapshot::restore() const {
  const ShardedUnits::Whole whole(core_.sharded_units.get());
  core_.model.load_state_dict(weights_);
  core_.optimizers.zero_grad();
  for (const auto& each : core_.optimizers) {
    auto& optimizer = *each.optimizer;
    const auto then = optimizers_.find(each.name);
    std::vector<std::string> none_are_new;
    optimizer.load_options(then == optimizers_.end() ? detail::as_made(optimizer)
                                                     : detail::without_spoilt_rates(then->second.options),
                           none_are_new);
    // A rate that isn't finite comes back as it was, for the next step to refuse it.
    if (then != optimizers_.end()) detail::set_learning_rates(optimizer, then->second.rates);
    optimizer.load_state(then == optimizers_.end() ? std::vector<NamedTensor>() : then->second.moments);
  }
  core_.scaler = scaler_;
  load_random_state(random_, core_.options.generators);
  core_.carried.load(carried_);
  core_.pending_logs = {};
}

}  // namespace etude::inline v0
