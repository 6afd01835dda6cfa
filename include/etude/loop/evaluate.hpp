#pragma once

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/interrupt.hpp"
#include "etude/libtorch/generators.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/event_source.hpp"
#include "etude/loop/fetching.hpp"
#include "etude/loop/gather.hpp"
#include "etude/loop/same_data.hpp"
#include "etude/metrics/pending_logs.hpp"
#include "etude/metrics/running_mean.hpp"
#include "etude/metrics/speed.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/precision/cast_guard.hpp"

namespace etude::inline v0 {

/// The result of one batch of an evaluation.
struct PredictionStepOutput {
  torch::Tensor loss;  ///< One element; undefined without labels that it needs.
  Tensors logits;      ///< The outputs.
  Tensors labels;
  Tensors logs = {};  ///< parts of the loss by name, one element each
  /// As in LossOutput: whether the loss is divided by the number of labels of its batch.
  bool counts_items = false;
};

/// The parts of its batches that an evaluation keeps: only the loss, the inputs of its metrics, or
/// everything.
enum class Keep { loss, metrics, all };

/// The result of an evaluation.
struct EvaluationResult {
  EvalPrediction prediction;
  Metrics metrics;
};

/// The same values without their graphs. An output without dimensions has one, of size 1.
PredictionStepOutput detached(const PredictionStepOutput& output);

/// Throws DataError if evaluations are planned and one of their datasets is empty. A trainer that overrides
/// `get_eval_dataloader` isn't checked, since its loaders may differ.
void check_eval_datasets(const TrainerCore& core);

/// What each of several processes goes over: everything, its part of every batch, or its part of the data,
/// which is divided already.
enum class EvaluationParts { none, of_batches, of_data };

/// Accumulates the batches of an evaluation.
class EvaluationTally {
 public:
  /// `examples`: the expected number, if known.
  EvaluationTally(const TrainerCore& core, Keep keep, std::optional<std::int64_t> examples,
                  EvaluationParts parts = EvaluationParts::none);
  ~EvaluationTally();

  /// Adds the loss of a batch and its parts, weighted by what the loss is a mean over, of which the batch has
  /// `items`. Throws DataError if one isn't a single element.
  void add_loss(const PredictionStepOutput& output, const LossDivisor& items);
  /// Adds the rest, and passes it to `batch_eval_metrics`. A batch that is padding counts as having no
  /// examples.
  void add(const Batch& batch, PredictionStepOutput output, bool is_last, bool is_padding = false);

  /// Returns the loss and the metrics, whose names begin with `prefix`, those of all processes.
  EvaluationResult take(const std::string& prefix);

 private:
  /// Whether the processes merge the states of a metric instead of gathering its batches.
  bool merges() const;
  /// Metrics need labels to compare with.
  bool computes(const EvalPrediction& prediction) const;

  const TrainerCore& core_;
  Keep keep_;
  EvaluationParts parts_of_;
  bool is_part_, wants_inputs_, wants_losses_;
  BatchRows rows_;
  Gathered all_;
  Metrics computed_;
  RunningMean loss_;
  std::int64_t losses_ = 0;  // their number
  PendingLogs parts_;        // of the loss
};

/// Saves the parts of a training that an evaluation would disturb, and restores them: the current loader,
/// pending logs, the update's item count, the state that the model carries, which begins with zeros, the
/// generators, and the mode of every submodule. Gradients are disabled meanwhile.
class EvaluationScope {
 public:
  EvaluationScope(TrainerCore& core, const DataLoader& loader, bool predicting);

 private:
  /// A member of its own, so that it is restored even if a later member's constructor throws.
  struct Aside {
    Aside(TrainerCore& core_, const DataLoader& loader, bool is_prediction);
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
    ~Aside();

    TrainerCore& core;
    const DataLoader* eval_dataloader;
    PendingLogs pending_logs;
    std::optional<double> num_items_in_batch;
    CarriedTensors carried;
    bool predicting;
  };

  Aside aside_;
  RandomStateGuard random_;
  EvalGuard modes_;
  torch::NoGradGuard no_grad_;
};

/// With `eval_enable_grad`, finds out whether an evaluation adds to the gradients of the weights.
class EvaluationGradients {
 public:
  explicit EvaluationGradients(const TrainerCore& core) : core_(core), before_(versions()) {}
  /// Throws ArgumentError if it has.
  void check() const;

 private:
  using Version = std::pair<const void*, std::int64_t>;  // of a tensor's contents

  std::vector<Version> versions() const;

  const TrainerCore& core_;
  std::vector<Version> before_;
};

/// Casts the weights for an evaluation, if the arguments ask for it.
class EvaluationPrecision {
 public:
  explicit EvaluationPrecision(TrainerCore& core);
  EvaluationPrecision(const EvaluationPrecision&) = delete;
  EvaluationPrecision& operator=(const EvaluationPrecision&) = delete;
  ~EvaluationPrecision() { core_.weights_are = before_; }

  /// A batch with inputs of the type of the weights.
  Batch fit(Batch batch) const {
    return core_.weights_are ? with_inputs_as(std::move(batch), *core_.weights_are) : batch;
  }

 private:
  TrainerCore& core_;
  std::optional<torch::ScalarType> before_;
  std::optional<CastGuard> weights_;
};

/// Runs over a dataset without training: in evaluation mode, without gradients unless `eval_enable_grad` asks
/// for them, and without disturbing the training's random numbers. The modes of all submodules are restored
/// afterwards.
template <class Events>
class EvaluationLoop {
 public:
  EvaluationLoop(Events& events, std::string prefix, std::vector<std::string> ignore_keys)
      : events_(events),
        core_(events.core()),
        prefix_(std::move(prefix)),
        ignore_keys_(std::move(ignore_keys)) {
    detail::check_metric_name(prefix_);
  }

  /// Evaluates each dataset, logs its metrics, and returns all of them.
  static Metrics over(Events& events, const EvalDatasets& datasets, const std::string& prefix,
                      const std::vector<std::string>& ignore_keys) {
    if (datasets.empty()) throw ArgumentError("eval_dataset is not set: an evaluation needs it");
    auto& core = events.core();
    const auto keep = kept(core);
    Metrics all;
    for (const auto& [name, dataset] : datasets)
      EvaluationLoop(events, datasets.named() ? prefix + "_" + name : prefix, ignore_keys)
          .template run<EvaluateBegin, EvaluateEnd>(dataset, keep, [&](Metrics& metrics) {
            const auto share_logs = [&] {
              core.ranks.average(core.pending_logs, core.args.logging_by_rank);
              core.complete_logs(metrics);
            };
            share_logs();
            metrics =
                events.raise(Evaluate{core.context(), std::move(metrics), core.is_intermediate()}).metrics;
            share_logs();  // what its handlers have logged
            metrics = core.ranks.first(metrics);
            events.trainer().log(metrics);
            all.update(metrics);
          });
    return events.raise(EvaluateAll{core.context(), std::move(all), core.is_intermediate()}).metrics;
  }

  /// Returns the metrics of the first batch of each `eval_dataset`; raises no event.
  static Metrics first_batches(Events& events) {
    auto& core = events.core();
    const auto& datasets = core.options.eval_dataset;
    Metrics all;
    for (const auto& [name, dataset] : datasets) {
      EvaluationLoop loop(events, datasets.named() ? "eval_" + name : "eval", {});
      all.update(loop.first_batch(dataset, kept(core)));
    }
    return all;
  }

  /// The outputs of a batch, with their loss if it has labels or the loss needs none. Whether a loss of the
  /// user's own needs labels shows when it asks for them.
  static LossOutput outputs_of(Events& events, const Batch& batch) {
    auto& core = events.core();
    if (!batch.labels.empty()) return computed(events, batch);
    if (core.has_own_compute_loss() && !core.predicting && !core.missing_labels.loss_needs_them()) {
      try {
        return computed(events, batch);
      } catch (const NoTensorsError&) {
        core.missing_labels.note_loss_needs_them();
      }
    }
    return outputs_without_labels(core, batch);
  }

  /// `Begin` and `End` are the scope's events; `receive` gets the metrics within it.
  template <class Begin, class End, class Receive>
  EvaluationResult run(const Dataset& dataset, Keep keep, Receive receive) {
    const PhaseClock::Scope scope_of_time(core_.phase_clock, TimedPhase::evaluation);
    const auto start = std::chrono::steady_clock::now();
    const auto loader = made_by("get_eval_dataloader", events_.trainer().get_eval_dataloader(dataset));
    check_same_data(core_, loader->options().name, loader->dataset());
    constexpr bool predicting = std::same_as<Begin, PredictBegin>;
    announce_loader(events_, *loader, predicting ? LoaderUse::predict : LoaderUse::evaluate);
    const EvaluationScope scope(core_, *loader, predicting);

    events_.template open<End>();
    if constexpr (std::same_as<Begin, EvaluateBegin>)
      events_.raise(EvaluateBegin{core_.context(), prefix_, core_.is_intermediate()});
    else
      events_.raise(Begin{core_.context(), prefix_});
    core_.share_buffers();
    auto result = go_over(*loader, keep);
    const bool is_part = parts_of(*loader) != EvaluationParts::none;
    const auto batch_size = core_.args.per_device_eval_batch_size * (is_part ? core_.ranks.world_size() : 1);
    if (is_part) seen_ = static_cast<std::int64_t>(core_.ranks.sum(static_cast<double>(seen_)));
    const auto steps = detail::groups_of(seen_, batch_size);
    result.metrics.update(speed_metrics(prefix_, start, static_cast<double>(seen_), steps));
    result.metrics = core_.ranks.first(result.metrics);
    receive(result.metrics);
    events_.template leave<End>();
    return result;
  }

 private:
  static Keep kept(const TrainerCore& core) {
    return core.args.prediction_loss_only || !core.options.compute_metrics ? Keep::loss
           : core.args.batch_eval_metrics                                  ? Keep::metrics
                                                                           : Keep::all;
  }

  EvaluationParts parts_of(const DataLoader& loader) const {
    if (!events_.has_others()) return EvaluationParts::none;
    if (loader.dataset().is_divided()) return EvaluationParts::of_data;
    return loader.options().part.world_size == core_.ranks.world_size() ? EvaluationParts::of_batches
                                                                        : EvaluationParts::none;
  }

  Metrics first_batch(const Dataset& dataset, Keep keep) {
    const auto start = std::chrono::steady_clock::now();
    const auto loader = made_by("get_eval_dataloader", events_.trainer().get_eval_dataloader(dataset));
    loader->limit_batches(1);
    const EvaluationScope scope(core_, *loader, /*predicting=*/false);
    const EvaluationPrecision precision(core_);
    EvaluationTally tally(core_, keep, loader->examples());
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

  static LossOutput computed(Events& events, const Batch& batch) {
    try {
      return events.trainer().compute_loss_in_precision(batch, events.core().group.num_items());
    } catch (const c10::Error& error) {
      explain_differentiation(error);
      throw;
    }
  }

  EvaluationResult go_over(const DataLoader& loader, Keep keep) {
    const auto parts = parts_of(loader);
    const bool is_part = parts != EvaluationParts::none, is_divided = parts == EvaluationParts::of_data;
    // Handlers of EvaluateBegin and EvaluateEnd may swap the weights, so they see the originals.
    const EvaluationPrecision precision(core_);
    const EvaluationGradients gradients(core_);
    EvaluationTally tally(core_, keep, loader.examples(), parts);
    auto batches = loader.begin_epoch(0);
    const auto fetch = [&] {
      const InterruptionScope waiting(!core_.ranks.several() && InterruptionScope::may());
      return fetched(
          core_.args, [&] { return batches.next(); },
          [&] {
            return fmt::format("the dataset of {} ({})", core_.predicting ? "a prediction" : "an evaluation",
                               prefix_);
          });
    };
    auto next = fetch();
    if (!next)
      throw DataError(std::string("the dataset to ") + (prefix_ == "test" ? "predict" : "evaluate") +
                      " is empty");
    // Whose part has no more batches repeats its last one, as long as others have some.
    bool has_ended = false;
    const auto fetch_with_others = [&](const Batch& last) {
      std::optional<Batch> batch;
      if (!has_ended) batch = fetch();
      has_ended = !batch;
      if (core_.ranks.sum(has_ended ? 0 : 1) > 0 && has_ended) batch = last;
      return batch;
    };
    while (next) {
      // Counted before the labels go to a device, so that nothing waits for it, unless a handler may change
      // them.
      constexpr bool may_change = Events::template is_written<PredictionStepBegin>();
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
      batch = events_.raise(PredictionStepBegin{core_.context(), std::move(batch)}).batch;
      if (may_change) divisor = count(batch);
      auto output =
          with_place([&] { return prediction_step(batch); },
                     [&] { return place_of(core_.model, "an evaluation (" + prefix_ + ")", batch); });
      tally.add_loss(output, items_of(output, batch, divisor));
      if (keep != Keep::loss && output.labels.empty() && !core_.predicting)
        core_.missing_labels.warn(prefix_);
      events_.raise(PredictionStep{core_.context(), batch, output.logits, output.loss});
      tally.add(batch, std::move(output), !next);
    }
    gradients.check();
    return tally.take(prefix_);
  }

  /// Counts the items of a batch for its loss, and returns its divisor, if it is known.
  std::optional<LossDivisor> count(const Batch& batch) {
    core_.group.set_num_items(core_.items_in(batch.labels));
    return core_.loss_divisor(batch.labels);
  }

  /// What the loss of a batch is a mean over: by default, its examples.
  LossDivisor items_of(const PredictionStepOutput& output, const Batch& batch,
                       const std::optional<LossDivisor>& divisor) const {
    if (output.counts_items)
      if (const auto counted = core_.group.num_items()) return LossDivisor(*counted);
    return divisor.value_or(LossDivisor(static_cast<double>(batch.size)));
  }

  /// The results have no graph, which would keep all that they were computed from.
  PredictionStepOutput prediction_step(const Batch& batch) {
    const torch::AutoGradMode mode(core_.args.eval_enable_grad);
    return detached(events_.trainer().prediction_step(batch, ignore_keys_));
  }

  Events& events_;
  TrainerCore& core_;
  std::string prefix_;
  std::vector<std::string> ignore_keys_;
  std::int64_t seen_ = 0;
};

}  // namespace etude::inline v0
