#include "etude/loop/trainer_methods.hpp"

#include <exception>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/loop/write_checkpoint.hpp"
#include "evaluate.hpp"
#include "train.hpp"

namespace etude::inline v0::detail {

namespace {

LossOutput loss_of_training_step(EventSource& events, const Batch& batch) {
  auto& core = events.core();
  if (core.compiled_step.is_on())
    if (auto computed = core.compiled_step.loss_of(events, batch)) return *std::move(computed);
  return compute_loss_in_precision(events, batch, core.group.num_items());
}

/// Trains with the largest micro-batches that fit in memory.
TrainOutput train_in_memory(EventSource& events, const TrainOptions& options) {
  auto& core = events.core();
  const Snapshot<part::Weights, part::Optimizers, part::Generators, part::Carried, part::Logs,
                 part::Callbacks>
      before(events);
  for (;;) {
    try {
      return TrainLoop(events).run(options);
    } catch (...) {
      if (!core.finds_batch_size(std::current_exception())) throw;
    }  // The exception, and any tensors it holds, are released only after its handler.
    core.shrink_batches();
    before.restore();
  }
}

}  // namespace

void initialise(EventSource& events, TrainerOptions options, const TrainerTraits& traits) {
  auto& core = events.core();
  core.options = std::move(options);
  core.overrides = traits.overrides;
  core.is_quiet = traits.is_quiet;
  core.shard_stage = traits.shard_stage;
  events.guarded([&] {
    core.initialise(traits.join);
    events.raise<InitEnd>();
  });
}

TrainOutput train(EventSource& events, const SteppedTraining& stepped_training, const TrainOptions& options) {
  auto& core = events.core();
  const Calls::Scope call(core.calls, Calls::train);
  stepped_training.check_none("train()");
  const ActivityClock::Run run(core.activity_clock, core.args, core.options.files(), core.device.is_cpu());
  core.prepare_machine();
  if (!core.options.train_dataset) throw ArgumentError("train_dataset is not set: train() needs it");
  const ScopedValue training(core.activity, Activity::training);
  const RemoteControl::UnderWay under_way(core.remote);
  auto output = events.guarded([&] {
    return core.args.auto_find_batch_size ? train_in_memory(events, options) : TrainLoop(events).run(options);
  });
  core.activity_clock.finish();
  output.time_by_activity = core.activity_clock.times();
  return output;
}

Metrics evaluate(EventSource& events, const EvaluateOptions& options) {
  auto& core = events.core();
  const Calls::Scope call(core.calls, Calls::evaluate);
  const AveragedWeightsInUse weights(core.optimizers);
  const auto& datasets = options.eval_dataset.empty() ? core.options.eval_dataset : options.eval_dataset;
  const auto run = [&] {
    return evaluate_all(events, datasets, options.metric_key_prefix, options.ignore_keys);
  };
  if (std::exchange(core.evaluation_is_due, false)) return run();
  return events.guarded([&] {
    if (core.is_training()) return run();
    events.check_trackers();
    events.open<EvaluationRunEnd>();
    events.raise<EvaluationRunBegin>();
    return events.leave<EvaluationRunEnd>(run()).metrics;
  });
}

PredictionOutput predict(EventSource& events, const Dataset& dataset, const PredictOptions& options) {
  auto& core = events.core();
  const Calls::Scope call(core.calls, Calls::predict);
  const AveragedWeightsInUse weights(core.optimizers);
  return events.guarded([&] {
    if (!core.is_training()) events.check_trackers();
    return predict_all(events, dataset, options);
  });
}

LossOutput compute_loss_in_precision(EventSource& events, const Batch& batch,
                                     std::optional<double> num_items_in_batch) {
  auto& core = events.core();
  std::optional<Batch> cast;
  const Batch& inputs = in_type_of_weights(core, batch, cast);
  const LossParts parts(core);
  return parts.added_to(
      in_precision(core, [&] { return events.trainer().compute_loss(inputs, num_items_in_batch); }));
}

torch::Tensor training_step(EventSource& events, Batch& batch) {
  auto& core = events.core();
  auto computed = loss_of_training_step(events, batch);
  log_parts(core, computed);
  auto& [loss, outputs, counts_items, logs] = computed;
  core.loss_check.before_backward(loss, batch);
  std::optional<double> share;
  if (!counts_items) {
    core.unknown_divisor.note_mean();
    share = core.group.share();
    loss = core.group.share_of(std::move(loss), outputs);
  } else if (core.group.is_padding()) {
    loss = loss * 0;
  }
  return backward_pass(events, batch, std::move(outputs), std::move(loss), share);
}

torch::Tensor backward_pass(EventSource& events, const Batch& batch, Tensors outputs, torch::Tensor loss,
                            std::optional<double> share, std::optional<std::size_t> optimizer) {
  auto& core = events.core();
  if (auto event = events.raise<BackwardBegin>(batch, std::move(outputs), std::move(loss)))
    loss = std::move(event->loss);
  events.check_written(loss);
  optimizer ? core.backward(loss, *optimizer) : core.backward(loss);
  loss = loss.variable_data();
  events.raise<BackwardEnd>(batch, loss, share);
  return loss;
}

PredictionStepOutput prediction_step(EventSource& events, const Batch& batch,
                                     const std::vector<std::string>& ignore_keys) {
  auto computed = outputs_of(events, batch);
  auto parts = parts_of(computed);
  return {std::move(computed.loss), without_keys(computed.outputs, ignore_keys), batch.labels,
          std::move(parts), computed.counts_items};
}

void log(EventSource& events, Metrics& logs) {
  auto& core = events.core();
  const Calls::Scope call(core.calls, Calls::log);
  core.complete_logs(logs);
  const auto line = core.log_history.add(logs);  // A handler may call log() itself.
  if (auto event = events.raise<Log>(std::move(logs))) logs = std::move(event->logs);
  core.log_history.set(line, logs);
}

void log_samples(EventSource& events, const std::vector<Sample>& samples) {
  const Calls::Scope call(events.core().calls, Calls::log);
  events.raise<LogSamples>(samples);
}

std::filesystem::path save_checkpoint(EventSource& events) {
  auto& core = events.core();
  const Calls::Scope call(core.calls, Calls::save_checkpoint);
  const AveragedWeightsInUse weights(core.optimizers);
  auto event = events.raise<SaveBegin>();
  return write_checkpoint(core, events.states(),
                          event ? std::move(event->tensors) : decltype(event->tensors)());
}

}  // namespace etude::inline v0::detail
