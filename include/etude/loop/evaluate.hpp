#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etude/interrupt.hpp"
#include "etude/libtorch/random.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/gather.hpp"
#include "etude/metrics/speed.hpp"

namespace etude {

/// What a batch of an evaluation comes to.
struct PredictionStepOutput {
  torch::Tensor loss;  ///< One element; undefined where there are no labels.
  Tensors logits;      ///< The outputs that are predictions.
  Tensors labels;
};

/// What an evaluation keeps of its batches: the loss alone, what its metrics need of each, or everything.
enum class Keep { loss, metrics, all };

/// Goes over a dataset without training on it: in evaluation mode, without gradients, and without disturbing
/// the random numbers of the training. The modes of all submodules are as before afterwards.
template <class Trainer>
class EvaluationLoop {
 public:
  struct Result {
    EvalPrediction prediction;
    Metrics metrics;
  };

  EvaluationLoop(Trainer& trainer, std::string prefix, std::vector<std::string> ignore_keys)
      : trainer_(trainer),
        core_(trainer.core_),
        prefix_(std::move(prefix)),
        ignore_keys_(std::move(ignore_keys)) {}

  /// `Begin` and `End` are the events of the scope; `tell` gets the metrics inside it.
  template <class Begin, class End, class Tell>
  Result run(const Dataset& dataset, Keep keep, Tell tell) {
    const auto start = std::chrono::steady_clock::now();
    const auto loader = trainer_.derived().get_eval_dataloader(dataset);
    const struct Restore {
      TrainerCore& core;
      const DataLoader* eval_dataloader;
      PendingLogs pending_logs;
      ~Restore() {
        core.eval_dataloader = eval_dataloader;
        pending_logs.merge(std::move(core.pending_logs));
        core.pending_logs = std::move(pending_logs);
      }
    } restore{core_, std::exchange(core_.eval_dataloader, loader.get()),
              std::exchange(core_.pending_logs, {})};
    const RandomStateGuard random(core_.device);
    const auto modes = core_.model.eval_guard();
    const torch::NoGradGuard no_grad;

    trainer_.template open<End>();
    trainer_.raise(Begin{core_.context(), prefix_});
    Result result = go_over(*loader, keep);
    const auto samples = loader->dataset_size().value_or(seen_);
    const auto steps =
        (samples + core_.args.per_device_eval_batch_size - 1) / core_.args.per_device_eval_batch_size;
    result.metrics.update(speed_metrics(prefix_, start, samples, steps));
    tell(result.metrics);
    trainer_.template leave<End>();
    return result;
  }

 private:
  Result go_over(const DataLoader& loader, Keep keep) {
    const auto& args = core_.args;
    const auto wants = [&](const char* what) {
      return std::find(args.include_for_metrics.begin(), args.include_for_metrics.end(), what) !=
             args.include_for_metrics.end();
    };
    Gathered all(args.eval_accumulation_steps, args.eval_do_concat_batches, loader.dataset_size());
    Metrics computed;
    RunningMean loss;

    auto batches = loader.begin_epoch(0);
    auto next = batches.next();
    if (!next)
      throw DataError(fmt::format("the dataset to {} is empty", prefix_ == "test" ? "predict" : "evaluate"));
    while (next) {
      core_.num_items_in_batch.reset();
      if (trainer_.wants_item_count())
        core_.num_items_in_batch = static_cast<double>(count_items(next->labels));
      auto batch = next->to(core_.device, args.dataloader_pin_memory);
      next = batches.next();
      seen_ += batch.size;
      interruption_point();
      batch = trainer_.raise(PredictionStepBegin{core_.context(), std::move(batch)}).batch;
      auto output = trainer_.derived().prediction_step(batch, ignore_keys_);
      if (output.loss.defined()) loss.add(checked_loss(output.loss), static_cast<double>(batch.size));
      trainer_.raise(PredictionStep{core_.context(), batch, output.logits, output.loss});
      if (keep != Keep::loss) {
        if (core_.options.preprocess_logits_for_metrics)
          output.logits = core_.options.preprocess_logits_for_metrics(output.logits, output.labels);
        EvalPrediction part{output.logits, output.labels, {}, {}, {}};
        if (wants("inputs")) part.inputs = batch.inputs;
        if (wants("loss") && output.loss.defined())
          part.losses = output.loss.reshape({1}).expand({batch.size});
        if (args.batch_eval_metrics && computes(part))
          computed = core_.options.compute_metrics(to_cpu(part), !next);
        if (keep == Keep::all) all.add(std::move(part), batch.size);
      }
    }

    Result result;
    if (loss.weight() > 0) result.metrics[prefix_ + "_loss"] = loss.mean();
    if (keep != Keep::loss) {
      result.prediction = all.take();
      if (!args.batch_eval_metrics && computes(result.prediction))
        computed = core_.options.compute_metrics(result.prediction);
    }
    for (const auto& [name, value] : computed)
      result.metrics[name.starts_with(prefix_ + "_") ? name : prefix_ + "_" + name] = value;
    return result;
  }

  /// Metrics need something to compare with.
  bool computes(const EvalPrediction& prediction) const {
    const auto& first = prediction.batches.empty() ? prediction : prediction.batches.front();
    return core_.options.compute_metrics && !first.label_ids.empty();
  }

  Trainer& trainer_;
  TrainerCore& core_;
  std::string prefix_;
  std::vector<std::string> ignore_keys_;
  std::int64_t seen_ = 0;
};

}  // namespace etude
