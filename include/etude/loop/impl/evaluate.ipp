#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/evaluate.hpp"
#include "etude/loop/loss_check.hpp"

namespace etude::inline v0 {
namespace detail {

inline bool wants_for_metrics(const TrainingArguments& args, const char* what) {
  return std::ranges::find(args.include_for_metrics, what) != args.include_for_metrics.end();
}

}  // namespace detail

ETUDE_INLINE void check_eval_datasets(const TrainerCore& core) {
  if (core.overrides.get_eval_dataloader) return;
  if (core.args.eval_strategy == IntervalStrategy::no && !core.args.eval_on_start) return;
  for (const auto& [name, dataset] : core.options.eval_dataset)
    if (dataset.size() == 0)
      throw DataError(
          fmt::format("eval_dataset{}: it has no examples", name.empty() ? "" : fmt::format(" '{}'", name)));
}

ETUDE_INLINE EvaluationTally::EvaluationTally(const TrainerCore& core, Keep keep,
                                              std::optional<std::int64_t> examples)
    : core_(core),
      keep_(keep),
      wants_inputs_(detail::wants_for_metrics(core.args, "inputs")),
      wants_losses_(detail::wants_for_metrics(core.args, "loss")),
      all_(core.args.eval_accumulation_steps, core.args.eval_do_concat_batches, examples) {
  if (keep != Keep::loss) core.options.compute_metrics.begin();
}

ETUDE_INLINE void EvaluationTally::add_loss(const PredictionStepOutput& output, std::int64_t size) {
  if (output.loss.defined()) loss_.add(checked_loss(output.loss), static_cast<double>(size));
}

ETUDE_INLINE void EvaluationTally::add(const Batch& batch, PredictionStepOutput output, bool is_last) {
  if (keep_ == Keep::loss) return;
  if (core_.options.preprocess_logits_for_metrics)
    output.logits = core_.options.preprocess_logits_for_metrics.function()(output.logits, output.labels);
  EvalPrediction part{std::move(output.logits), std::move(output.labels), {}, {}, {}};
  if (wants_inputs_) part.inputs = batch.inputs;
  if (wants_losses_ && output.loss.defined()) part.losses = output.loss.reshape({1}).expand({batch.size});
  if (core_.args.batch_eval_metrics && computes(part))
    computed_ = with_place([&] { return core_.options.compute_metrics(to_cpu(part), is_last); },
                           [] { return "compute_metrics"; });
  if (keep_ == Keep::all) all_.add(std::move(part), batch.size);
}

ETUDE_INLINE EvaluationResult EvaluationTally::take(const std::string& prefix) {
  EvaluationResult result;
  if (loss_.weight() > 0) result.metrics[prefix + "_loss"] = loss_.mean();
  if (keep_ != Keep::loss) {
    result.prediction = all_.take();
    if (!core_.args.batch_eval_metrics && computes(result.prediction))
      computed_ = with_place([&] { return core_.options.compute_metrics(result.prediction); },
                             [] { return "compute_metrics"; });
  }
  for (const auto& [name, value] : computed_)
    result.metrics[name.starts_with(prefix + "_") ? name : prefix + "_" + name] =
        detail::without_sign_of_nan(value);
  return result;
}

ETUDE_INLINE bool EvaluationTally::computes(const EvalPrediction& prediction) const {
  const auto& first = prediction.batches.empty() ? prediction : prediction.batches.front();
  return core_.options.compute_metrics && !first.label_ids.empty();
}

ETUDE_INLINE EvaluationScope::EvaluationScope(TrainerCore& core, const DataLoader& loader, bool predicting)
    : aside_(core, loader, predicting), random_(core.device), modes_(core.model.eval_guard()) {}

ETUDE_INLINE EvaluationScope::Aside::Aside(TrainerCore& core_, const DataLoader& loader, bool is_prediction)
    : core(core_),
      eval_dataloader(std::exchange(core.eval_dataloader, &loader)),
      pending_logs(std::exchange(core.pending_logs, {})),
      num_items_in_batch(core.group.num_items()),
      predicting(std::exchange(core.predicting, is_prediction)) {}

ETUDE_INLINE EvaluationScope::Aside::~Aside() {
  core.eval_dataloader = eval_dataloader;
  core.group.set_num_items(num_items_in_batch);
  core.predicting = predicting;
  pending_logs.merge(std::move(core.pending_logs));
  core.pending_logs = std::move(pending_logs);
}

}  // namespace etude::inline v0
