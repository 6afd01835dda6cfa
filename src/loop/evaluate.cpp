#include "etude/loop/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/model/loss.hpp"
#include "etude/model/loss_divisor.hpp"
#include "etude/parallel/merge_metrics.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

bool wants_for_metrics(const TrainingArguments& args, const char* what) {
  return std::ranges::find(args.include_for_metrics, what) != args.include_for_metrics.end();
}

}  // namespace

}  // namespace detail

PredictionStepOutput detached(const PredictionStepOutput& output) {
  const auto detach = [](const torch::Tensor& tensor) {
    return tensor.defined() && tensor.requires_grad() ? tensor.detach() : tensor;
  };
  return {detach(output.loss), output.logits.transform([&](const torch::Tensor& tensor) {
            return detail::at_least_1d(detach(tensor));
          }),
          output.labels.transform(detach), output.logs.transform(detach), output.counts_items};
}

void EvaluationGradients::check() const {
  if (versions() != before_)
    throw ArgumentError(
        "eval_enable_grad is true, and backward() added to the gradients of the weights in an evaluation: "
        "must use torch::autograd::grad, which doesn't");
}

std::vector<EvaluationGradients::Version> EvaluationGradients::versions() const {
  std::vector<Version> result;
  if (!core_.args.eval_enable_grad) return result;
  for (const auto& parameter : core_.model.parameters()) {
    const auto& grad = parameter.grad();
    result.emplace_back(grad.defined() ? grad.unsafeGetTensorImpl() : nullptr,
                        grad.defined() ? grad._version() : 0);
  }
  return result;
}

void check_eval_datasets(const TrainerCore& core) {
  if (core.overrides.get_eval_dataloader) return;
  if (core.args.eval_strategy == IntervalStrategy::no && !core.args.eval_on_start) return;
  for (const auto& [name, dataset] : core.options.eval_dataset)
    if (dataset.size() == 0)
      throw DataError(
          fmt::format("eval_dataset{}: it has no examples", name.empty() ? "" : fmt::format(" '{}'", name)));
}

EvaluationTally::EvaluationTally(const TrainerCore& core, Keep keep, std::optional<std::int64_t> examples,
                                 EvaluationParts parts)
    : core_(core),
      keep_(keep),
      parts_of_(parts),
      is_part_(parts != EvaluationParts::none),
      wants_inputs_(detail::wants_for_metrics(core.args, "inputs")),
      wants_losses_(detail::wants_for_metrics(core.args, "loss")),
      all_(core.args.eval_accumulation_steps, core.args.eval_do_concat_batches,
           parts == EvaluationParts::of_batches && examples ? *examples / core.ranks.world_size() + 1
                                                            : examples) {
  if (keep != Keep::loss) core.options.compute_metrics.begin();
}

EvaluationTally::~EvaluationTally() = default;

void EvaluationTally::add_loss(const PredictionStepOutput& output, const LossDivisor& items) {
  const bool adds_up = core_.loss_reduction() == LossReduction::sum;
  const auto add = [&](auto weight) {
    if (output.loss.defined() && adds_up) loss_.add(detail::scalar_loss(output.loss), 1.0);
    if (output.loss.defined() && !adds_up) loss_.add(detail::scalar_loss(output.loss), weight);
    for (std::size_t i = 0; i < output.logs.size(); ++i)
      parts_.add(output.logs.names()[i], output.logs[i], weight);
  };
  if (output.loss.defined()) ++losses_;
  if (const auto number = items.number())
    add(*number);
  else
    add(items.tensor());
}

void EvaluationTally::add(const Batch& batch, PredictionStepOutput output, bool is_last, bool is_padding) {
  if (keep_ == Keep::loss) return;
  if (core_.options.preprocess_logits_for_metrics)
    output.logits = core_.options.preprocess_logits_for_metrics.function()(output.logits, output.labels);
  EvalPrediction part{std::move(output.logits), std::move(output.labels), {}, {}, {}};
  if (wants_inputs_) part.inputs = batch.inputs;
  if (wants_losses_ && output.loss.defined()) part.losses = output.loss.reshape({1}).expand({batch.size});
  part = with_rows(part);
  const bool gathers = is_part_ && !merges();
  if (gathers || (keep_ == Keep::all && core_.args.eval_do_concat_batches))
    check_joins(part, batch.size, gathers);
  if (is_padding) {
    const auto none = [&](const torch::Tensor& tensor) { return tensor.narrow(0, 0, 0); };
    part = {part.predictions.transform(none),
            part.label_ids.transform(none),
            part.inputs.transform(none),
            part.losses.defined() ? none(part.losses) : part.losses,
            {}};
  }
  rows_.add(part, is_padding ? 0 : batch.size);
  const auto& compute = core_.options.compute_metrics;
  if (merges() && computes(part)) {
    if (!is_padding)
      with_place([&] { return compute(to_cpu(part), false); }, [] { return "compute_metrics"; });
  } else if (core_.args.batch_eval_metrics && computes(part)) {
    auto whole = to_cpu(part);
    if (is_part_) whole = gather_rows(core_.ranks.communicator(), whole, rows_.of(rows_.examples.size() - 1));
    computed_ = with_place([&] { return compute(whole, is_last); }, [] { return "compute_metrics"; });
  }
  if (keep_ == Keep::all) all_.add(std::move(part), batch.size);
}

EvaluationResult EvaluationTally::take(const std::string& prefix) {
  EvaluationResult result;
  std::vector<double> sums{loss_.weight() > 0 ? loss_.sum() : 0, loss_.weight(),
                           static_cast<double>(losses_)};
  if (is_part_) sums = core_.ranks.sum(sums);
  const auto [sum, items, losses] = std::tuple(sums[0], sums[1], sums[2]);
  const bool adds_up = core_.loss_reduction() == LossReduction::sum;
  if (losses > 0) result.metrics[prefix + "_loss"] = adds_up ? sum : detail::without_sign_of_nan(sum / items);
  if (is_part_) core_.ranks.average(parts_, /*by_rank=*/false);
  Metrics parts;
  parts_.take_into(parts);
  for (const auto& [name, value] : parts) result.metrics[prefix + "_" + name] = value;
  if (keep_ != Keep::loss) {
    result.prediction = all_.take();
    // Parts of the data come one after another, not batch by batch.
    if (parts_of_ == EvaluationParts::of_data && result.prediction.batches.empty()) {
      result.prediction = renumbered(std::move(result.prediction), rows_);
      rows_ = rows_.joined();
    }
    if (is_part_ && keep_ == Keep::all)
      result.prediction = gather_rows(core_.ranks.communicator(), result.prediction, rows_);
    else
      result.prediction = renumbered(std::move(result.prediction), rows_);
    if (merges())
      computed_ = core_.options.compute_metrics.merged(
          gather_states(core_.ranks.communicator(), core_.options.compute_metrics.state()));
    else if (!core_.args.batch_eval_metrics && computes(result.prediction))
      computed_ = with_place([&] { return core_.options.compute_metrics(result.prediction); },
                             [] { return "compute_metrics"; });
  }
  for (const auto& [name, value] : computed_)
    result.metrics[name.starts_with(prefix + "_") ? name : prefix + "_" + name] =
        detail::without_sign_of_nan(value);
  return result;
}

bool EvaluationTally::merges() const {
  return is_part_ && core_.args.batch_eval_metrics && core_.options.compute_metrics.merges();
}

bool EvaluationTally::computes(const EvalPrediction& prediction) const {
  const auto& first = prediction.batches.empty() ? prediction : prediction.batches.front();
  return core_.options.compute_metrics && !first.label_ids.empty();
}

EvaluationPrecision::EvaluationPrecision(TrainerCore& core) : core_(core), before_(core.weights_are) {
  if (!core.args.bf16_full_eval && !core.args.fp16_full_eval) return;
  const auto type = core.args.bf16_full_eval ? torch::kBFloat16 : torch::kHalf;
  weights_.emplace(core.model, type);
  core.weights_are = type;
}

EvaluationScope::EvaluationScope(TrainerCore& core, const DataLoader& loader, bool predicting)
    : aside_(core, loader, predicting), random_(core.device), modes_(core.model.eval_guard()) {}

EvaluationScope::Aside::Aside(TrainerCore& core_, const DataLoader& loader, bool is_prediction)
    : core(core_),
      eval_dataloader(std::exchange(core.eval_dataloader, &loader)),
      pending_logs(std::exchange(core.pending_logs, {})),
      num_items_in_batch(core.group.num_items()),
      carried(core.carried.tensors()),
      predicting(std::exchange(core.predicting, is_prediction)) {
  core.carried.reset();
}

EvaluationScope::Aside::~Aside() {
  core.eval_dataloader = eval_dataloader;
  core.group.set_num_items(num_items_in_batch);
  core.carried.load(carried);
  core.predicting = predicting;
  pending_logs.merge(std::move(core.pending_logs));
  core.pending_logs = std::move(pending_logs);
}

}  // namespace etude::inline v0
