#include "evaluation_tally.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "etude/libtorch/torch_error.hpp"
#include "etude/model/loss.hpp"
#include "etude/parallel/merge_metrics.hpp"

namespace etude::inline v0 {

namespace {

bool wants_for_metrics(const TrainingArguments& args, const char* what) {
  return std::ranges::find(args.include_for_metrics, what) != args.include_for_metrics.end();
}

}  // namespace

EvaluationTally::EvaluationTally(const RunSettings& run, LossReduction reduction, Keep keep,
                                 std::optional<std::int64_t> examples, EvaluationParts parts)
    : run_(run),
      adds_up_(reduction == LossReduction::sum),
      keep_(keep),
      parts_of_(parts),
      is_part_(parts != EvaluationParts::none),
      wants_inputs_(wants_for_metrics(run.args, "inputs")),
      wants_losses_(wants_for_metrics(run.args, "loss")),
      all_(run.args.eval_accumulation_steps, run.args.eval_do_concat_batches,
           parts == EvaluationParts::of_batches && examples ? *examples / run.ranks.world_size() + 1
                                                            : examples) {
  if (keep != Keep::loss) run.options.compute_metrics.begin();
}

EvaluationTally::~EvaluationTally() = default;

void EvaluationTally::add_loss(const PredictionStepOutput& output, const LossDivisor& items) {
  const auto add = [&](auto weight) {
    if (output.loss.defined() && adds_up_) loss_.add(detail::scalar_loss(output.loss), 1.0);
    if (output.loss.defined() && !adds_up_) loss_.add(detail::scalar_loss(output.loss), weight);
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
  if (run_.options.preprocess_logits_for_metrics)
    output.logits = run_.options.preprocess_logits_for_metrics.function()(output.logits, output.labels);
  EvalPrediction part{std::move(output.logits), std::move(output.labels), {}, {}, {}};
  if (wants_inputs_) part.inputs = batch.inputs;
  if (wants_losses_ && output.loss.defined()) part.losses = output.loss.reshape({1}).expand({batch.size});
  part = detail::transformed(part, detail::at_least_1d);
  const bool gathers = is_part_ && !merges();
  if (gathers || (keep_ == Keep::all && run_.args.eval_do_concat_batches))
    check_joins(part, batch.size, gathers);
  if (is_padding) {
    part = detail::transformed(part, [](const torch::Tensor& tensor) { return tensor.narrow(0, 0, 0); });
  }
  rows_.add(part, is_padding ? 0 : batch.size);
  const auto& compute = run_.options.compute_metrics;
  if (merges() && computes(part)) {
    if (!is_padding)
      with_place([&] { return compute(detail::transformed(part, detail::on_cpu), false); },
                 [] { return "compute_metrics"; });
  } else if (run_.args.batch_eval_metrics && computes(part)) {
    auto whole = detail::transformed(part, detail::on_cpu);
    if (is_part_) whole = gather_rows(run_.ranks.communicator(), whole, rows_.of(rows_.examples.size() - 1));
    computed_ = with_place([&] { return compute(whole, is_last); }, [] { return "compute_metrics"; });
  }
  if (keep_ == Keep::all) all_.add(std::move(part), batch.size);
}

EvaluationResult EvaluationTally::take(const std::string& prefix) {
  EvaluationResult result;
  std::vector<double> sums{loss_.weight() > 0 ? loss_.sum() : 0, loss_.weight(),
                           static_cast<double>(losses_)};
  if (is_part_) sums = run_.ranks.sum(sums);
  const auto [sum, items, losses] = std::tuple(sums[0], sums[1], sums[2]);
  if (losses > 0)
    result.metrics[prefix + "_loss"] = adds_up_ ? sum : detail::without_sign_of_nan(sum / items);
  if (is_part_) run_.ranks.average(parts_, /*by_rank=*/false);
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
      result.prediction = gather_rows(run_.ranks.communicator(), result.prediction, rows_);
    else
      result.prediction = renumbered(std::move(result.prediction), rows_);
    if (merges())
      computed_ = run_.options.compute_metrics.merged(
          gather_states(run_.ranks.communicator(), run_.options.compute_metrics.state()));
    else if (!run_.args.batch_eval_metrics && computes(result.prediction))
      computed_ = with_place([&] { return run_.options.compute_metrics(result.prediction); },
                             [] { return "compute_metrics"; });
  }
  for (const auto& [name, value] : computed_)
    result.metrics[name.starts_with(prefix + "_") ? name : prefix + "_" + name] =
        detail::without_sign_of_nan(value);
  return result;
}

bool EvaluationTally::merges() const {
  return is_part_ && run_.args.batch_eval_metrics && run_.options.compute_metrics.merges();
}

bool EvaluationTally::computes(const EvalPrediction& prediction) const {
  const auto& first = prediction.batches.empty() ? prediction : prediction.batches.front();
  return run_.options.compute_metrics && !first.label_ids.empty();
}

}  // namespace etude::inline v0
