#include "etude/loop/dry_run.hpp"

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "etude/any_trainer.hpp"
#include "etude/base/message.hpp"
#include "etude/data/batch_stream.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/loss_check.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/units.hpp"

namespace etude::inline v0 {

TrainingDryRun::TrainingDryRun(const Context& context) : context_(context), optimizer_(context.optimizer) {
  // before the optimizer flattens the parameters
  for (const auto& [name, parameter] : context_.model.named_parameters())
    gradients_.emplace_back(parameter,
                            parameter.grad().defined() ? parameter.grad().clone() : torch::Tensor());
}

void TrainingDryRun::begin() {
  if (context_.args.fp16) scaler_.emplace();
  const auto& options = context_.trainer.options();
  if (const auto world_size = context_.args.world_size(); world_size > 1)
    throw ArgumentError(
        fmt::format("the number of processes is {}: must be 1 to try a learning rate or a batch size, since "
                    "each process would find another: try it in one process, and give the result to all",
                    world_size));
  if (options.optimizer && !options.optimizer->state().empty()) {
    torch::serialize::OutputArchive archive;
    options.optimizer->save(archive);
    std::ostringstream bytes;
    archive.save_to(bytes);
    torch_state_ = std::move(bytes).str();
  }
  for (const auto& [name, tensor] : optimizer_->state()) optimizer_state_.emplace_back(name, tensor.clone());
  for (const auto& group : optimizer_->param_groups()) rates_.emplace_back(group.lr, group.initial_lr);
  for (const auto& [name, tensor] : context_.model.state_dict()) tensors_.add(tensor);
  if (const auto& loss = options.loss.module()) {
    for (const auto& tensor : loss->parameters()) tensors_.add(tensor);
    for (const auto& tensor : loss->buffers()) tensors_.add(tensor);
  }
  random_ = random_state(options.generators);
  const CarriedStates carried(context_.model);
  carried_ = carried.tensors();
  carried.reset();
  if (const auto* sampler = dynamic_cast<StatefulSampler*>(options.train_sampler.get()))
    sampler_ = sampler->state();
  if (options.train_dataset && options.train_dataset.has_state()) dataset_ = options.train_dataset.state();
  pending_logs_ = context_.pending_logs;
  modes_.emplace(context_.model.eval_guard());
  if (context_.args.gradient_checkpointing && !are_units_run(context_.model))
    recomputed_units_ = std::make_unique<RecomputedUnits>(context_.model);
  is_over_ = false;
  context_.model.train(true);
  optimizer_->zero_grad();
}

TrainingDryRun::~TrainingDryRun() {
  try {
    end();
  } catch (...) {
    message(context_.args, LogLevel::error, "after a dry run not everything could be restored: {}",
            message_of(std::current_exception()));
  }
}

void TrainingDryRun::end() {
  if (std::exchange(is_over_, true)) return;
  optimizer_->zero_grad();
  optimizer_->load_state(optimizer_state_);
  for (std::size_t i = 0; i < rates_.size(); ++i)
    optimizer_->set_learning_rates(i, rates_[i].first, rates_[i].second);
  const auto& options = context_.trainer.options();
  if (!torch_state_.empty()) {
    std::istringstream bytes(torch_state_);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes);
    options.optimizer->state().clear();
    options.optimizer->load(archive);
  }
  own_optimizer_.reset();
  tensors_.restore();
  for (auto& [parameter, gradient] : gradients_) parameter.mutable_grad() = gradient;
  CarriedStates(context_.model).load(carried_);
  recomputed_units_.reset();
  modes_.reset();
  context_.pending_logs = std::move(pending_logs_);
  if (sampler_) dynamic_cast<StatefulSampler&>(*options.train_sampler).load_state(*sampler_);
  if (dataset_) options.train_dataset.load_state(*dataset_);
  for (const auto& problem : load_random_state(random_, options.generators))
    message(context_.args, LogLevel::warning, "after a dry run: {}", problem);
}

torch::Tensor TrainingDryRun::add_gradients(const std::vector<Batch>& group) {
  torch::Tensor sum;
  for (const auto& batch : group) {
    auto loss = with_place([&] { return context_.trainer.compute_loss(batch).loss; },
                           [&] { return place_of(context_.model, "a dry run", batch); });
    check_training_loss(loss);
    loss = loss / static_cast<double>(group.size());
    (scaler_ ? scaler_->scale(loss) : loss).backward();
    sum = sum.defined() ? sum + loss.detach() : loss.detach();
  }
  return sum;
}

torch::Tensor TrainingDryRun::step(const std::vector<Batch>& group) {
  const auto loss = add_gradients(group);
  const auto& args = context_.args;
  const bool is_finite = !scaler_ || scaler_->unscale(*optimizer_);
  if (scaler_) scaler_->update();
  if (args.max_grad_value > 0) optimizer_->clip_grad_value(args.max_grad_value);
  if (args.max_grad_norm > 0) optimizer_->clip_grad_norm(args.max_grad_norm);
  if (optimizer_->needs_closure()) {
    optimizer_->step([&, first = true]() mutable {
      if (std::exchange(first, false)) return loss;
      optimizer_->zero_grad();
      return add_gradients(group);
    });
  } else if (is_finite) {
    optimizer_->step();
  }
  optimizer_->zero_grad();
  return loss;
}

void TrainingDryRun::forget_step() { optimizer_->zero_grad(); }

void TrainingDryRun::set_learning_rate(double rate) {
  double largest = 0;
  for (const auto& [lr, initial_lr] : rates_) largest = std::max(largest, initial_lr);
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    const double lr = largest > 0 ? rate * rates_[i].second / largest : rate;
    optimizer_->set_learning_rates(i, lr, lr);
  }
}

Batch TrainingDryRun::on_device(const Batch& batch) const {
  return batch.to(context_.model.parameters().front().device(), context_.args.dataloader_pin_memory);
}

}  // namespace etude::inline v0
