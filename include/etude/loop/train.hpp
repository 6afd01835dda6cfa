#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "etude/checkpoint/checkpoint.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/plan.hpp"
#include "etude/message.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/stop_training.hpp"

namespace etude {

/// One `train()`: epochs of update steps, each a group of micro-batches. The order of everything follows
/// Hugging Face's Trainer. What differs: a request in `control` stays until it is honoured; a stop is looked
/// at before work is begun; a group that is given up leaves no gradients behind; the last evaluation and
/// checkpoint come on every kind of stop.
template <class Trainer>
class TrainLoop {
 public:
  explicit TrainLoop(Trainer& trainer) : trainer_(trainer), core_(trainer.core_) {}

  TrainOutput run(const TrainOptions& options) {
    prepare(options);
    const auto outside = trainer_.depth();
    trainer_.template open<TrainEnd>();
    try {
      if (!checkpoint_.empty())
        stoppable([&] { trainer_.raise(CheckpointLoaded{core_.context(), checkpoint_}); });
      stoppable([&] { trainer_.raise(TrainBegin{core_.context()}); });
      if (core_.args.eval_on_start && !core_.control.should_training_stop)
        stoppable([&] { trainer_.evaluate_all(core_.options.eval_dataset, "eval", {}); });
      run_epochs();
      return finish();
    } catch (...) {
      trainer_.report(std::current_exception());
      trainer_.close_to(outside + 1);
      trainer_.attempt([&] { log_summary(); });
      trainer_.close_to(outside);
      core_.control = {};
      throw;
    }
  }

 private:
  void prepare(const TrainOptions& options) {
    auto& state = core_.state;
    if (core_.options.model_init && core_.trained_before) trainer_.make_model();
    core_.trained_before = true;
    core_.train_dataloader = trainer_.derived().get_train_dataloader();
    plan_ = plan_training(core_.args, core_.train_dataloader->size());
    state = {};
    checkpoint_.clear();
    if (options.resume_from_checkpoint) {
      checkpoint_ = find_checkpoint(options.resume_from_checkpoint, core_.args.output_dir);
      load_model(checkpoint_, core_.model);
      state = load_trainer_state(checkpoint_);
    }
    state.max_steps = plan_.max_steps;
    state.num_train_epochs = plan_.num_train_epochs;
    state.train_batch_size = core_.args.per_device_train_batch_size;
    state.logging_steps = absolute_steps(core_.args.logging_steps, plan_.max_steps);
    state.eval_steps =
        absolute_steps(core_.args.eval_steps.value_or(core_.args.logging_steps), plan_.max_steps);
    state.save_steps = absolute_steps(core_.args.save_steps, plan_.max_steps);

    core_.control.should_training_stop = false;
    core_.control.stop_reason.clear();
    core_.last_logged_step = state.global_step;
    first_step_ = state.global_step;
    core_.loss = RunningMean(core_.args.logging_nan_inf_filter);
    core_.total_loss = RunningMean(true);
    summary_ = {};
    core_.grad_norm.reset();

    core_.model.train(true);
    if (!core_.optimizer) core_.optimizer = trainer_.derived().create_optimizer();
    core_.lr_scheduler = trainer_.derived().create_scheduler(plan_.max_steps);
    if (!checkpoint_.empty()) load_optimizer(checkpoint_, *core_.optimizer, *core_.lr_scheduler);
    core_.optimizer->zero_grad();
    begun_ = std::chrono::steady_clock::now();
  }

  void run_epochs() {
    const auto first = core_.state.global_step / plan_.updates_per_epoch;
    auto skipped = core_.state.global_step % plan_.updates_per_epoch * core_.args.gradient_accumulation_steps;
    for (std::int64_t epoch = first; epoch < plan_.num_train_epochs; ++epoch) {
      if (core_.control.should_training_stop || core_.state.global_step >= plan_.max_steps) break;
      trainer_.template open<TrainingRunEpochEnd>();
      trainer_.template open<EpochEnd>();
      stoppable([&] {
        trainer_.raise(EpochBegin{core_.context()});
        run_steps(epoch, std::exchange(skipped, 0));
      });
      stoppable([&] { trainer_.template leave<EpochEnd>(); });
      stoppable([&] { log_save_evaluate(); });
      stoppable([&] { trainer_.template leave<TrainingRunEpochEnd>(); });
      epoch_was_stopped_ = std::exchange(core_.control.should_epoch_stop, false);
    }
  }

  void run_steps(std::int64_t epoch, std::int64_t first_batch) {
    auto batches = core_.train_dataloader->begin_epoch(epoch, first_batch);
    auto done = first_batch;
    while (!core_.stopping() && core_.state.global_step < plan_.max_steps) {
      auto group = fetch(batches);
      if (group.empty()) {
        if (done == 0) core_.control.request_stop("train_dataset gave no batches");
        return;
      }
      if (!run_group(group)) return;
      done += static_cast<std::int64_t>(group.size());
      update(static_cast<double>(epoch) +
             static_cast<double>(done) / static_cast<double>(plan_.batches_per_epoch));
    }
  }

  /// The micro-batches of the next update: fewer than asked for at the end of an epoch.
  template <class Batches>
  std::vector<Batch> fetch(Batches& batches) {
    std::vector<Batch> group;
    while (static_cast<std::int64_t>(group.size()) < core_.args.gradient_accumulation_steps) {
      auto batch = batches.next();
      if (!batch) break;
      group.push_back(std::move(*batch));
    }
    core_.group_size = static_cast<std::int64_t>(group.size());
    // Counted before the labels go to a device, which nobody waits for then; but who hears of a batch may
    // change them.
    constexpr bool may_change = Trainer::template handles<BatchFetched>;
    core_.num_items_in_batch.reset();
    if (!may_change) count_items_of(group);
    for (auto& batch : group) {
      batch = batch.to(core_.device, core_.args.dataloader_pin_memory);
      batch = trainer_.raise(BatchFetched{core_.context(), std::move(batch)}).batch;
    }
    if (may_change) count_items_of(group);
    return group;
  }

  void count_items_of(const std::vector<Batch>& group) {
    if (!trainer_.wants_item_count()) return;
    std::int64_t items = 0;
    for (const auto& batch : group) items += count_items(batch.labels);
    core_.num_items_in_batch = static_cast<double>(items);
  }

  /// Adds up the gradients of a group; false if it was given up.
  bool run_group(std::vector<Batch>& group) {
    trainer_.raise(StepBegin{core_.context()});
    losses_.clear();
    for (std::size_t i = 0; i < group.size(); ++i) {
      run_micro_batch(group[i]);
      if (i + 1 == group.size()) break;
      trainer_.raise(SubstepEnd{core_.context()});
      if (core_.stopping()) {
        core_.optimizer->zero_grad();
        return false;
      }
    }
    // For optimizers that evaluate the loss again and again: the first time is the one that was just done.
    reevaluate_ = [this, &group, first = true]() mutable {
      if (std::exchange(first, false)) return sum(losses_);
      core_.optimizer->zero_grad();
      std::vector<torch::Tensor> losses;
      for (auto& batch : group) losses.push_back(trainer_.derived().training_step(batch));
      return sum(losses);
    };
    return true;
  }

  void run_micro_batch(Batch& batch) {
    batch = trainer_.raise(ForwardBegin{core_.context(), std::move(batch)}).batch;
    losses_.push_back(trainer_.derived().training_step(batch));
  }

  static torch::Tensor sum(const std::vector<torch::Tensor>& losses) {
    auto total = losses.front();
    for (std::size_t i = 1; i < losses.size(); ++i) total = total + losses[i];
    return total;
  }

  void update(double epoch) {
    auto& optimizer = *core_.optimizer;
    for (const auto& loss : losses_) core_.loss.add(loss);
    if (core_.args.max_grad_value > 0) {
      core_.grad_norm = optimizer.grad_norm();
      optimizer.clip_grad_value(core_.args.max_grad_value);
      if (core_.args.max_grad_norm > 0) optimizer.clip_grad_norm(core_.args.max_grad_norm);
    } else {
      core_.grad_norm = core_.args.max_grad_norm > 0 ? optimizer.clip_grad_norm(core_.args.max_grad_norm)
                                                     : optimizer.grad_norm();
    }
    trainer_.raise(GradientsClipped{core_.context(), core_.grad_norm});
    trainer_.raise(PreOptimizerStep{core_.context()});
    core_.learning_rate = core_.lr_scheduler->get_last_lr();
    optimizer.step(optimizer.needs_closure() ? reevaluate_ : nullptr);
    trainer_.raise(OptimizerStep{core_.context()});
    core_.lr_scheduler->step();
    trainer_.raise(SchedulerStep{core_.context(), core_.lr_scheduler->get_last_lr()});
    optimizer.zero_grad();
    ++core_.state.global_step;
    core_.state.epoch = epoch;
    trainer_.raise(StepEnd{core_.context()});
    log_save_evaluate();
  }

  /// What was asked for, in this order whatever the order of asking: the log, the evaluation, the checkpoint.
  void log_save_evaluate() {
    auto& control = core_.control;
    if (std::exchange(control.should_log, false) && core_.state.global_step > core_.last_logged_step)
      log_step();
    if (std::exchange(control.should_evaluate, false)) {
      const auto metrics = trainer_.evaluate_all(core_.options.eval_dataset, "eval", {});
      if (core_.lr_scheduler->needs_metric()) core_.lr_scheduler->step(best_metric(core_.args, metrics));
      const bool best = update_best_metric(core_.args, metrics, core_.state);
      if (core_.args.save_strategy == SaveStrategy::best && best) control.should_save = true;
    }
    if (std::exchange(control.should_save, false)) save();
  }

  void log_step() {
    Metrics logs{{"loss", take_loss()}};
    if (const auto filtered = std::exchange(filtered_, 0); filtered > 0)
      logs["non_finite_losses"] = static_cast<double>(filtered);
    if (core_.grad_norm.defined()) logs["grad_norm"] = core_.grad_norm.template item<double>();
    logs["learning_rate"] = core_.learning_rate;
    trainer_.derived().log(logs);
  }

  /// The mean loss of an update since the last log.
  double take_loss() {
    const auto updates = static_cast<double>(core_.state.global_step - core_.last_logged_step);
    const double loss = core_.loss.sum() / updates;
    filtered_ = core_.loss.filtered();
    core_.total_loss.add(loss, updates);
    core_.loss.reset();
    core_.last_logged_step = core_.state.global_step;
    return loss;
  }

  void save() {
    const auto checkpoint = trainer_.derived().save_checkpoint();
    trainer_.raise(Save{core_.context(), checkpoint});
    if (core_.options.push) {
      trainer_.raise(PushBegin{core_.context(), checkpoint});
      core_.options.push(checkpoint);
    }
  }

  TrainOutput finish() {
    const bool early = core_.state.global_step < plan_.max_steps;
    auto& reason = core_.control.stop_reason;
    if (early) {
      if (reason.empty())
        reason = core_.control.should_training_stop ? "a callback set should_training_stop"
                 : epoch_was_stopped_               ? "a callback set should_epoch_stop in the last epoch"
                                                    : "train_dataset has no more batches";
      stoppable([&] { trainer_.raise(Stop{core_.context(), reason}); });
    }
    // What was asked for since the last step; and again, for what is asked for meanwhile or a stop came in
    // between.
    for (int i = 0; i < 2; ++i) stoppable([&] { log_save_evaluate(); });
    TrainOutput output;
    output.stop_reason = early ? reason : "";
    stoppable([&] { log_summary(); });
    if (core_.args.load_best_model_at_end) stoppable([&] { load_best(); });
    stoppable([&] { trainer_.template leave<TrainEnd>(); });
    output.global_step = core_.state.global_step;
    output.metrics = summary_;
    output.training_loss = summary_.at("train_loss");
    core_.control = {};
    return output;
  }

  /// Once, whatever way the training ends.
  void log_summary() {
    if (!summary_.empty()) return;
    const auto steps = core_.state.global_step - first_step_;
    if (core_.state.global_step > core_.last_logged_step) take_loss();
    summary_ = speed_metrics("train", begun_, samples(steps), steps);
    summary_["train_loss"] = steps > 0 ? core_.total_loss.mean() : 0;
    auto logs = summary_;
    trainer_.derived().log(logs);
    summary_ = std::move(logs);
  }

  /// The examples that `steps` updates saw, as the plan has it: a shorter last batch counts in full.
  std::int64_t samples(std::int64_t steps) const {
    return steps * core_.args.per_device_train_batch_size * core_.args.gradient_accumulation_steps;
  }

  void load_best() {
    if (!core_.state.best_model_checkpoint) {
      message(core_.args, LogLevel::warning, "there is no checkpoint of the best model to load: {}",
              core_.state.best_metric ? "none was saved when it was reached"
                                      : "no evaluation gave a best metric");
      return;
    }
    const std::filesystem::path best = *core_.state.best_model_checkpoint;
    load_model(best, core_.model);
    trainer_.raise(CheckpointLoaded{core_.context(), best});
  }

  /// Runs one part of the training; a `StopTraining` out of it closes what it has left open, and is a request
  /// to stop.
  template <class Part>
  void stoppable(Part part) {
    const auto outside = trainer_.depth();
    try {
      part();
    } catch (const StopTraining& stop) {
      trainer_.close_to(outside);
      core_.optimizer->zero_grad();
      core_.control.request_stop(stop.what());
    }
  }

  Trainer& trainer_;
  TrainerCore& core_;
  TrainPlan plan_;
  std::function<torch::Tensor()> reevaluate_;
  std::vector<torch::Tensor> losses_;  // of the micro-batches of the group under way
  std::chrono::steady_clock::time_point begun_;
  std::int64_t first_step_ = 0;
  std::int64_t filtered_ = 0;
  bool epoch_was_stopped_ = false;
  Metrics summary_;
  std::filesystem::path checkpoint_;
};

}  // namespace etude
