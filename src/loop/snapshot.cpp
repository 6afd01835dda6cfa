#include "etude/loop/snapshot.hpp"

#include <torch/types.h>

#include <algorithm>

#include "etude/base/message.hpp"
#include "etude/checkpoint/resume.hpp"
#include "etude/data/batch_stream.hpp"
#include "etude/parallel/sharded_units.hpp"
#include "etude/parallel/shards.hpp"

namespace etude::inline v0 {

namespace {

torch::Tensor copy_on_host(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

/// The options of an optimizer as they were when it was made.
nlohmann::ordered_json options_as_made(Optimizer& optimizer) {
  auto options = optimizer.options_state();
  for (auto& changed : options["changed"]) changed = nlohmann::ordered_json::object();
  return options;
}

}  // namespace

LearningRates::LearningRates(Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) rates_.emplace_back(group.lr, group.initial_lr);
}

void LearningRates::restore(Optimizer& optimizer) const {
  for (std::size_t i = 0; i < rates_.size(); ++i)
    optimizer.set_learning_rates(i, rates_[i].first, rates_[i].second);
}

void LearningRates::scale_to(double rate, Optimizer& optimizer) const {
  double largest = 0;
  for (const auto& [lr, initial_lr] : rates_) largest = std::max(largest, initial_lr);
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    const double lr = largest > 0 ? rate * rates_[i].second / largest : rate;
    optimizer.set_learning_rates(i, lr, lr);
  }
}

OptimizerCopy::OptimizerCopy(Optimizer& optimizer, Communicator& communicator)
    : state_(gather_state(optimizer, communicator, /*everywhere=*/true)),
      options_(optimizer.options_state()),
      rates_(optimizer) {
  for (auto& [name, tensor] : state_) tensor = copy_on_host(tensor);
}

void OptimizerCopy::restore(Optimizer& optimizer) const {
  std::vector<std::string> none_differs;
  optimizer.load_options(detail::without_spoilt_rates(options_), none_differs);
  rates_.restore(optimizer);  // even a rate that isn't finite, which the next step rejects
  optimizer.load_state(state_);
}

namespace part {

Weights::Weights(EventSource& events) {
  const auto& core = events.core();
  const ShardedUnits::Whole whole(core.sharded_units.get());
  for (const auto& [name, tensor] : core.model.state_dict()) model.emplace(name, copy_on_host(tensor));
  if (const auto& module = core.options.loss.module()) {
    for (const auto& tensor : module->parameters()) loss.add(tensor);
    for (const auto& tensor : module->buffers()) loss.add(tensor);
  }
}

void Weights::restore(EventSource& events) const {
  const auto& core = events.core();
  const ShardedUnits::Whole whole(core.sharded_units.get());
  TensorCopies of_model;
  for (const auto& [name, tensor] : core.model.state_dict())
    if (const auto copy = model.find(name); copy != model.end()) of_model.add(tensor, copy->second);
  of_model.restore();
  loss.restore();
}

Buffers::Buffers(EventSource& events) {
  for (const auto& [name, buffer] : events.core().model.named_buffers()) copies.add(buffer);
}

Gradients::Gradients(EventSource& events) {
  for (const auto& [name, parameter] : events.core().model.named_parameters()) {
    const auto& gradient = parameter.grad();
    gradients.emplace_back(parameter, gradient.defined() ? gradient.clone() : torch::Tensor());
  }
}

void Gradients::restore(EventSource&) const {
  for (const auto& [parameter, gradient] : gradients) parameter.mutable_grad() = gradient;
}

Optimizers::Optimizers(EventSource& events) : scaler(events.core().scaler) {
  auto& core = events.core();
  for (const auto& each : core.optimizers)
    copies.emplace(each.name, OptimizerCopy(*each.optimizer, core.ranks.communicator()));
}

void Optimizers::restore(EventSource& events) const {
  auto& core = events.core();
  core.optimizers.zero_grad();
  for (const auto& each : core.optimizers) {
    if (const auto copy = copies.find(each.name); copy != copies.end()) {
      copy->second.restore(*each.optimizer);
      continue;
    }
    std::vector<std::string> none_differs;
    each.optimizer->load_options(options_as_made(*each.optimizer), none_differs);
    each.optimizer->load_state({});
  }
  core.scaler = scaler;
}

void Generators::restore(EventSource& events) const {
  const auto& core = events.core();
  for (const auto& problem : load_random_state(state, core.options.generators))
    message(core.args, LogLevel::warning, "{}", problem);
}

DataPositions::DataPositions(EventSource& events) {
  const auto& options = events.core().options;
  if (const auto* own = dynamic_cast<StatefulSampler*>(options.train_sampler.get())) sampler = own->state();
  if (options.train_dataset && options.train_dataset.has_state()) dataset = options.train_dataset.state();
}

void DataPositions::restore(EventSource& events) const {
  const auto& options = events.core().options;
  if (sampler) dynamic_cast<StatefulSampler&>(*options.train_sampler).load_state(*sampler);
  if (dataset) options.train_dataset.load_state(*dataset);
}

void LogsAside::restore(EventSource& events) const {
  auto since = std::exchange(events.core().pending_logs, logs);
  events.core().pending_logs.merge(std::move(since));
}

void Callbacks::restore(EventSource& events) const {
  StateReport nothing_new;
  load_states(states, events.states(), nothing_new);
}

}  // namespace part

}  // namespace etude::inline v0
