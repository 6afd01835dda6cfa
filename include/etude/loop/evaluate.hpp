#pragma once

#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etude/libtorch/random.hpp"
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
  Result run(const Dataset& dataset, bool loss_only, Tell tell) {
    const auto start = std::chrono::steady_clock::now();
    const auto loader = trainer_.derived().get_eval_dataloader(dataset);
    const struct Restore {
      TrainerCore& core;
      const DataLoader* eval_dataloader;
      PendingLogs pending_logs;
      ~Restore() {
        core.eval_dataloader = eval_dataloader;
        core.pending_logs = std::move(pending_logs);
      }
    } restore{core_, std::exchange(core_.eval_dataloader, loader.get()),
              std::exchange(core_.pending_logs, {})};
    const RandomStateGuard random(core_.device);
    const auto modes = core_.model.eval_guard();
    const torch::NoGradGuard no_grad;

    trainer_.template open<End>();
    trainer_.raise(Begin{core_.context(), prefix_});
    Result result = go_over(*loader, loss_only);
    const auto samples = loader->dataset_size().value_or(seen_);
    const auto steps =
        (samples + core_.args.per_device_eval_batch_size - 1) / core_.args.per_device_eval_batch_size;
    result.metrics.update(speed_metrics(prefix_, start, samples, steps));
    tell(result.metrics);
    trainer_.template leave<End>();
    return result;
  }

 private:
  Result go_over(const DataLoader& loader, bool loss_only) {
    const auto& args = core_.args;
    const auto wants = [&](const char* what) {
      return std::find(args.include_for_metrics.begin(), args.include_for_metrics.end(), what) !=
             args.include_for_metrics.end();
    };
    const bool by_batch = args.batch_eval_metrics && core_.options.compute_metrics;
    Gathered all(args.eval_accumulation_steps, args.eval_do_concat_batches);
    Metrics computed;
    RunningMean loss;

    auto batches = loader.begin_epoch(0);
    auto next = batches.next();
    if (!next)
      throw DataError(fmt::format("the dataset to {} is empty", prefix_ == "test" ? "predict" : "evaluate"));
    while (next) {
      auto batch = next->to(core_.device, args.dataloader_pin_memory);
      next = batches.next();
      seen_ += batch.size;
      batch = trainer_.raise(PredictionStepBegin{core_.context(), std::move(batch)}).batch;
      auto output = trainer_.derived().prediction_step(batch, ignore_keys_);
      if (output.loss.defined()) loss.add(output.loss, static_cast<double>(batch.size));
      trainer_.raise(PredictionStep{core_.context(), batch, output.logits, output.loss});
      if (!loss_only) {
        if (core_.options.preprocess_logits_for_metrics)
          output.logits = core_.options.preprocess_logits_for_metrics(output.logits, output.labels);
        EvalPrediction part{output.logits, output.labels, {}, {}, {}};
        if (wants("inputs")) part.inputs = batch.inputs;
        if (wants("loss") && output.loss.defined())
          part.losses = output.loss.reshape({1}).expand({batch.size});
        if (by_batch) computed = core_.options.compute_metrics(to_cpu(part), !next);
        all.add(std::move(part));
      }
    }

    Result result;
    if (loss.weight() > 0) result.metrics[prefix_ + "_loss"] = loss.mean();
    if (!loss_only) {
      result.prediction = all.take();
      if (core_.options.compute_metrics && !by_batch && has_labels(result.prediction))
        computed = core_.options.compute_metrics(result.prediction);
    }
    for (const auto& [name, value] : computed)
      result.metrics[name.starts_with(prefix_ + "_") ? name : prefix_ + "_" + name] = value;
    return result;
  }

  static bool has_labels(const EvalPrediction& prediction) {
    return !prediction.label_ids.empty() ||
           (!prediction.batches.empty() && has_labels(prediction.batches.front()));
  }

  Trainer& trainer_;
  TrainerCore& core_;
  std::string prefix_;
  std::vector<std::string> ignore_keys_;
  std::int64_t seen_ = 0;
};

}  // namespace etude
