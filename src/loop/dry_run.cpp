#include "etude/loop/dry_run.hpp"

#include <fmt/format.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <exception>
#include <sstream>
#include <utility>

#include "etude/any_trainer.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/loss_check.hpp"
#include "etude/model/units.hpp"

namespace etude::inline v0 {

TrainingDryRun::TrainingDryRun(const Context& context)
    : context_(context),
      events_(context.trainer.events_),
      gradients_(events_),
      optimizer_(context.optimizer) {}

void TrainingDryRun::begin() {
  if (const auto world_size = context_.args.world_size(); world_size > 1)
    throw ArgumentError(
        fmt::format("the number of processes is {}: must be 1 to try a learning rate or a batch size, since "
                    "each process would find another: try it in one process, and give the result to all",
                    world_size));
  if (!optimizer_) {
    own_optimizer_ = events_.trainer().create_optimizer();
    if (context_.args.offload_optimizer) own_optimizer_->offload_moments();
    optimizer_ = own_optimizer_.get();
  }
  if (context_.args.fp16) scaler_.emplace();
  if (const auto& users = context_.trainer.options().optimizer; users && !users->state().empty()) {
    torch::serialize::OutputArchive archive;
    users->save(archive);
    std::ostringstream bytes;
    archive.save_to(bytes);
    torch_state_ = std::move(bytes).str();
  }
  optimizer_begin_.emplace(*optimizer_, context_.trainer.communicator());
  begin_.emplace(events_);
  was_result_ = optimizer_->use_weights(WeightsInUse::training);
  events_.core().carried.reset();
  modes_.emplace(context_.model.eval_guard());
  if (context_.args.gradient_checkpointing && !are_units_run(context_.model))
    recomputed_units_ = std::make_unique<RecomputedUnits>(context_.model);
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
  if (!begin_) return;
  const auto begin = *std::exchange(begin_, std::nullopt);
  optimizer_->zero_grad();
  optimizer_begin_->restore(*optimizer_);
  if (was_result_) optimizer_->use_weights(WeightsInUse::result);
  if (!torch_state_.empty()) {
    auto& users = *context_.trainer.options().optimizer;
    std::istringstream bytes(torch_state_);
    torch::serialize::InputArchive archive;
    archive.load_from(bytes);
    users.state().clear();
    users.load(archive);
  }
  own_optimizer_.reset();
  recomputed_units_.reset();
  modes_.reset();
  begin.restore();
  gradients_.restore();
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

void TrainingDryRun::set_learning_rate(double rate) { optimizer_begin_->rates().scale_to(rate, *optimizer_); }

Batch TrainingDryRun::on_device(const Batch& batch) const {
  return batch.to(context_.model.parameters().front().device(), context_.args.dataloader_pin_memory);
}

}  // namespace etude::inline v0
