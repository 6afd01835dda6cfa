#include "evaluate.hpp"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/function_ref.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/base/scoped_value.hpp"
#include "etude/data/data_loader.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/fetching.hpp"
#include "etude/loop/same_data.hpp"
#include "etude/loop/snapshot.hpp"
#include "etude/loop/trainer_methods.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/precision/cast_guard.hpp"
#include "evaluation_tally.hpp"

namespace etude::inline v0 {

namespace {

/// Returns the same values without their graphs. Gives an output without dimensions one of size 1.
PredictionStepOutput detached(const PredictionStepOutput& output) {
  const auto detach = [](const torch::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad() ? tensor.detach() : tensor;
  };
  return {detach(output.loss), output.logits.transform([&](const torch::Tensor& tensor) {
            return detail::at_least_1d(detach(tensor));
          }),
          output.labels.transform(detach), output.logs.transform(detach), output.counts_items};
}

/// Sets aside the parts of a training that an evaluation would disturb: values that wait for the next log,
/// the state that the model carries (an evaluation begins with zeros), the generators, and the modes of all
/// submodules. Gradients are disabled meanwhile.
class EvaluationScope {
 public:
  EvaluationScope(EventSource& events, Evaluation& evaluation)
      : of_training_(events),
        modes_(events.core().model.eval_guard()),
        evaluation_(events.core().evaluation, &evaluation) {
    events.core().carried.reset();
  }

 private:
  SnapshotScope<part::DefaultGenerators, part::Carried, part::LogsAside> of_training_;
  EvalGuard modes_;
  torch::NoGradGuard no_grad_;
  ScopedValue<Evaluation*> evaluation_;
};

/// The addresses and versions of the weights' gradients, if `eval_enable_grad` lets an evaluation compute
/// any; otherwise nothing.
std::vector<std::pair<const void*, std::int64_t>> gradient_versions(const TrainerCore& core) {
  std::vector<std::pair<const void*, std::int64_t>> result;
  if (!core.args.eval_enable_grad) return result;
  for (const auto& parameter : core.model.parameters()) {
    const auto& grad = parameter.grad();
    result.emplace_back(grad.defined() ? grad.unsafeGetTensorImpl() : nullptr,
                        grad.defined() ? grad._version() : 0);
  }
  return result;
}

/// Casts the weights for an evaluation, if the arguments ask for it.
class EvaluationPrecision {
 public:
  explicit EvaluationPrecision(TrainerCore& core) : core_(core) {
    if (!core.args.bf16_full_eval && !core.args.fp16_full_eval) return;
    const auto type = core.args.bf16_full_eval ? torch::kBFloat16 : torch::kHalf;
    weights_.emplace(core.model, type);
    weights_are_.emplace(core.weights_are, type);
  }

  /// Returns the batch with its inputs cast to the type of the weights.
  Batch fit(Batch batch) const {
    return core_.weights_are ? with_inputs_as(std::move(batch), *core_.weights_are) : batch;
  }

 private:
  TrainerCore& core_;
  std::optional<CastGuard> weights_;
  std::optional<ScopedValue<std::optional<torch::ScalarType>>> weights_are_;
};

/// Runs over a dataset without training: in evaluation mode, without gradients unless `eval_enable_grad` asks
/// for them, and without disturbing the training's random numbers. The modes of all submodules are restored
/// afterwards.
class EvaluationLoop {
 public:
  EvaluationLoop(EventSource& events, std::string prefix, std::vector<std::string> ignore_keys)
      : events_(events),
        core_(events.core()),
        prefix_(std::move(prefix)),
        ignore_keys_(std::move(ignore_keys)) {
    detail::check_metric_name(prefix_);
  }

  /// `Begin` and `End` are the scope's events; `receive` gets the metrics within it.
  template <class Begin, class End>
  EvaluationResult run(const Dataset& dataset, Keep keep, detail::FunctionRef<void(Metrics&)> receive);

  /// Evaluates the first batch alone, without events.
  Metrics first_batch(const Dataset& dataset, Keep keep);

 private:
  /// Returns the loader that the trainer makes for a dataset.
  std::unique_ptr<DataLoader> loader_of(const Dataset& dataset) const {
    return made_by("get_eval_dataloader", events_.trainer().get_eval_dataloader(dataset));
  }
  EvaluationParts parts_of(const DataLoader& loader) const;
  EvaluationResult go_over(const DataLoader& loader, Keep keep);
  /// Counts the items of a batch for its loss, and returns its divisor, if it is known.
  std::optional<LossDivisor> count(const Batch& batch);
  /// Returns the number that the loss of a batch is divided by: by default, the number of its examples.
  LossDivisor items_of(const PredictionStepOutput& output, const Batch& batch,
                       const std::optional<LossDivisor>& divisor) const;
  PredictionStepOutput prediction_step(const Batch& batch);

  EventSource& events_;
  TrainerCore& core_;
  std::string prefix_;
  std::vector<std::string> ignore_keys_;
  std::int64_t seen_ = 0;
};

template <class Begin, class End>
EvaluationResult EvaluationLoop::run(const Dataset& dataset, Keep keep,
                                     detail::FunctionRef<void(Metrics&)> receive) {
  const ActivityClock::Scope scope_of_time(core_.activity_clock, TimedActivity::evaluation);
  const auto start = std::chrono::steady_clock::now();
  const auto loader = loader_of(dataset);
  check_same_data(core_.ranks, loader->options().name, loader->dataset());
  constexpr bool predicting = std::same_as<Begin, PredictBegin>;
  announce_loader(events_, *loader, predicting ? LoaderUse::predict : LoaderUse::evaluate);
  Evaluation evaluation{.loader = *loader, .is_prediction = predicting};
  const EvaluationScope scope(events_, evaluation);

  events_.open<End>();
  if constexpr (std::same_as<Begin, EvaluateBegin>)
    events_.raise<EvaluateBegin>(prefix_, core_.is_intermediate());
  else
    events_.raise<Begin>(prefix_);
  core_.share_buffers();
  auto result = go_over(*loader, keep);
  const bool is_part = parts_of(*loader) != EvaluationParts::none;
  const auto batch_size = core_.args.per_device_eval_batch_size * (is_part ? core_.ranks.world_size() : 1);
  if (is_part) seen_ = static_cast<std::int64_t>(core_.ranks.sum(static_cast<double>(seen_)));
  const auto steps = detail::groups_of(seen_, batch_size);
  result.metrics.update(speed_metrics(prefix_, start, static_cast<double>(seen_), steps));
  result.metrics = core_.ranks.first(result.metrics);
  receive(result.metrics);
  events_.leave<End>();
  return result;
}

EvaluationResult EvaluationLoop::go_over(const DataLoader& loader, Keep keep) {
  const auto parts = parts_of(loader);
  const bool is_part = parts != EvaluationParts::none, is_divided = parts == EvaluationParts::of_data;
  // Handlers of EvaluateBegin and EvaluateEnd may swap the weights, so they see the originals.
  const EvaluationPrecision precision(core_);
  const auto gradients = gradient_versions(core_);
  EvaluationTally tally(core_, core_.loss_reduction(), keep, loader.examples(), parts);
  auto batches = loader.begin_epoch(0);
  const auto fetch = [&] {
    const InterruptionScope waiting(!core_.ranks.several() && InterruptionScope::may());
    return fetched(
        core_.args, [&] { return batches.next(); },
        [&] {
          return fmt::format("the dataset of {} ({})",
                             core_.is_predicting() ? "a prediction" : "an evaluation", prefix_);
        });
  };
  auto next = fetch();
  if (!next)
    throw DataError(std::string("the dataset to ") + (prefix_ == "test" ? "predict" : "evaluate") +
                    " is empty");
  // A process without further batches repeats its last one as long as other processes have some.
  bool has_ended = false;
  const auto fetch_with_others = [&](const Batch& last) {
    std::optional<Batch> batch;
    if (!has_ended) batch = fetch();
    has_ended = !batch;
    if (core_.ranks.sum(has_ended ? 0 : 1) > 0 && has_ended) batch = last;
    return batch;
  };
  while (next) {
    // Counts labels before they go to a device, to avoid waiting for it, unless a handler may change them.
    const bool may_change = events_.is_written<PredictionStepBegin>();
    std::optional<LossDivisor> divisor;
    if (!may_change) divisor = count(*next);
    auto batch = precision.fit(next->to(core_.device, core_.args.dataloader_pin_memory));
    const bool is_padding = is_divided ? has_ended : is_part && batches.share() == 0;
    next = is_divided ? fetch_with_others(*next) : fetch();
    if (is_part)
      core_.ranks.interruption_point();
    else
      interruption_point();
    if (is_padding) {
      tally.add(batch, prediction_step(batch), !next, true);
      continue;
    }
    seen_ += batch.size;
    if (auto event = events_.raise<PredictionStepBegin>(std::move(batch))) batch = std::move(event->batch);
    if (may_change) divisor = count(batch);
    auto output = with_place([&] { return prediction_step(batch); },
                             [&] { return place_of(core_.model, "an evaluation (" + prefix_ + ")", batch); });
    tally.add_loss(output, items_of(output, batch, divisor));
    if (keep != Keep::loss && output.labels.empty() && !core_.is_predicting())
      core_.missing_labels.warn(prefix_);
    events_.raise<PredictionStep>(batch, output.logits, output.loss);
    tally.add(batch, std::move(output), !next);
  }
  if (gradient_versions(core_) != gradients)
    throw ArgumentError(
        "eval_enable_grad is true, and backward() added to the gradients of the weights in an evaluation: "
        "must use torch::autograd::grad, which doesn't");
  return tally.take(prefix_);
}

EvaluationParts EvaluationLoop::parts_of(const DataLoader& loader) const {
  if (!core_.ranks.several()) return EvaluationParts::none;
  if (loader.dataset().is_divided()) return EvaluationParts::of_data;
  return loader.options().part.world_size == core_.ranks.world_size() ? EvaluationParts::of_batches
                                                                      : EvaluationParts::none;
}

std::optional<LossDivisor> EvaluationLoop::count(const Batch& batch) {
  core_.evaluation->num_items = core_.items_in(batch.labels);
  return core_.loss_divisor(batch.labels);
}

LossDivisor EvaluationLoop::items_of(const PredictionStepOutput& output, const Batch& batch,
                                     const std::optional<LossDivisor>& divisor) const {
  if (output.counts_items)
    if (const auto counted = core_.evaluation->num_items) return LossDivisor(*counted);
  return divisor.value_or(LossDivisor(static_cast<double>(batch.size)));
}

/// The results have no graph, which would keep alive all tensors that they were computed from.
PredictionStepOutput EvaluationLoop::prediction_step(const Batch& batch) {
  const torch::AutoGradMode mode(core_.args.eval_enable_grad);
  return detached(events_.trainer().prediction_step(batch, ignore_keys_));
}

Metrics EvaluationLoop::first_batch(const Dataset& dataset, Keep keep) {
  const auto start = std::chrono::steady_clock::now();
  const auto loader = loader_of(dataset);
  loader->limit_batches(1);
  Evaluation evaluation{.loader = *loader, .is_prediction = false};
  const EvaluationScope scope(events_, evaluation);
  const EvaluationPrecision precision(core_);
  EvaluationTally tally(core_, core_.loss_reduction(), keep, loader->examples());
  auto batches = loader->begin_epoch(0);
  const auto first = batches.next().value();
  const auto divisor = count(first);
  const auto batch = precision.fit(first.to(core_.device));
  auto output = prediction_step(batch);
  tally.add_loss(output, items_of(output, batch, divisor));
  tally.add(batch, std::move(output), true);
  auto metrics = tally.take(prefix_).metrics;
  metrics.update(speed_metrics(prefix_, start, static_cast<double>(batch.size), 1));
  metrics["epoch"] = 0;
  return metrics;
}

Keep kept(const RunSettings& run) {
  return run.args.prediction_loss_only || !run.options.compute_metrics ? Keep::loss
         : run.args.batch_eval_metrics                                 ? Keep::metrics
                                                                       : Keep::all;
}

LossOutput computed_loss(EventSource& events, const Batch& batch) {
  const auto& core = events.core();
  const auto num_items = core.evaluation ? core.evaluation->num_items : core.items_in(batch.labels);
  try {
    return detail::compute_loss_in_precision(events, batch, num_items);
  } catch (const c10::Error& error) {
    explain_differentiation(error);
    throw;
  }
}

}  // namespace

void check_eval_datasets(const RunSettings& run) {
  if (run.overrides.get_eval_dataloader) return;
  if (run.args.eval_strategy == IntervalStrategy::no && !run.args.eval_on_start) return;
  for (const auto& [name, dataset] : run.options.eval_dataset)
    if (dataset.size() == 0)
      throw DataError(
          fmt::format("eval_dataset{}: it has no examples", name.empty() ? "" : fmt::format(" '{}'", name)));
}

Metrics evaluate_all(EventSource& events, const EvalDatasets& datasets, const std::string& prefix,
                     const std::vector<std::string>& ignore_keys) {
  if (datasets.empty()) throw ArgumentError("eval_dataset is not set: an evaluation needs it");
  auto& core = events.core();
  const auto share_logs = [&](Metrics& metrics) {
    core.ranks.average(core.pending_logs, core.args.logging_by_rank);
    core.complete_logs(metrics);
  };
  Metrics all;
  for (const auto& [name, dataset] : datasets)
    EvaluationLoop(events, datasets.named() ? prefix + "_" + name : prefix, ignore_keys)
        .run<EvaluateBegin, EvaluateEnd>(dataset, kept(core), [&](Metrics& metrics) {
          share_logs(metrics);
          if (auto event = events.raise<Evaluate>(std::move(metrics), core.is_intermediate()))
            metrics = std::move(event->metrics);
          share_logs(metrics);  // the values that its handlers have logged
          metrics = core.ranks.first(metrics);
          events.trainer().log(metrics);
          all.update(metrics);
        });
  if (auto event = events.raise<EvaluateAll>(std::move(all), core.is_intermediate()))
    all = std::move(event->metrics);
  return all;
}

Metrics evaluate_first_batches(EventSource& events) {
  const auto& core = events.core();
  const auto& datasets = core.options.eval_dataset;
  Metrics all;
  for (const auto& [name, dataset] : datasets)
    all.update(EvaluationLoop(events, datasets.named() ? "eval_" + name : "eval", {})
                   .first_batch(dataset, kept(core)));
  return all;
}

PredictionOutput predict_all(EventSource& events, const Dataset& dataset, const PredictOptions& options) {
  Metrics reported;
  auto result = EvaluationLoop(events, options.metric_key_prefix, options.ignore_keys)
                    .run<PredictBegin, PredictEnd>(dataset, Keep::all, [&](const Metrics& metrics) {
                      auto event = events.raise<Predict>(metrics);
                      reported = event ? std::move(event->metrics) : metrics;
                    });
  return {std::move(result.prediction.predictions), std::move(result.prediction.label_ids),
          std::move(reported)};
}

LossOutput outputs_of(EventSource& events, const Batch& batch) {
  auto& core = events.core();
  if (!batch.labels.empty()) return computed_loss(events, batch);
  if (core.has_own_compute_loss() && !core.is_predicting() && !core.missing_labels.loss_needs_them()) {
    try {
      return computed_loss(events, batch);
    } catch (const NoTensorsError&) {
      core.missing_labels.note_loss_needs_them();
    }
  }
  return outputs_without_labels(core, batch);
}

}  // namespace etude::inline v0
