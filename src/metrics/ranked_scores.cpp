#include "etude/metrics/ranked_scores.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/data/tensors.hpp"
#include "etude/metrics/class_examples.hpp"

namespace etude::inline v0::metrics {
namespace detail {

namespace {

/// Groups equal scores. `scores` is [n], `positive` bool [n].
Ranking ranked(const at::Tensor& scores, const at::Tensor& positive) {
  const auto [distinct, group, all] = at::_unique2(scores, true, true, true);
  const auto positives = counts(group, positive.to(torch::kLong), distinct.size(0));
  return {positives.flip(0).to(torch::kDouble), all.flip(0).to(torch::kDouble)};
}

}  // namespace

}  // namespace detail

RankedScores::RankedScores(RankingOptions options, std::string name) : options_(std::move(options)) {
  if (options_.name.empty()) options_.name = std::move(name);
  if (options_.average == Average::micro)
    throw ArgumentError(fmt::format(
        "average of {} is micro: must be automatic, binary, macro, weighted or none", options_.name));
}

void RankedScores::update(const at::Tensor& predictions, const at::Tensor& labels) {
  const auto examples = class_examples(options_.name, predictions, labels, options_.ignore_index);
  if (!examples.scores.defined())
    throw DataError(fmt::format("{}: predictions are {} and labels {}: must be scores to rank, not classes",
                                options_.name, describe(predictions), describe(labels)));
  keep("scores", examples.scores);
  keep("labels", examples.labels);
  keep("counted", examples.counted);
}

Metrics RankedScores::of_rankings(double (*score)(const Ranking&), double without_positives) const {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto kept = value("scores");
  if (!kept.defined()) return {{options_.name, nan}};
  const auto counted = value("counted").nonzero().squeeze(1);
  const auto scores = kept.index_select(0, counted).cpu(),
             labels = value("labels").index_select(0, counted).cpu();
  const auto classes = kept.dim() == 1 ? 2 : kept.size(1);
  refuse_outside(options_.name, labels.lt(0).logical_or(labels.ge(classes)).sum().item<std::int64_t>());

  // Ranks by the logarithm of the probability, which has the same order but doesn't round small ones to 0.
  const auto shares = kept.dim() == 2 && options_.from_logits ? scores.log_softmax(1) : scores;
  const auto missing = kept.dim() == 2 ? shares.isnan().any(1) : shares.isnan();
  refuse_unordered(options_.name, missing.sum().item<std::int64_t>());
  const auto of_class = [&](std::int64_t index) {
    const auto column = kept.dim() == 2 ? shares.select(1, index) : index == 1 ? scores : -scores;
    return labels.numel() == 0 ? nan : score(detail::ranked(column, labels.eq(index)));
  };
  if (resolved(options_.average, classes) == Average::binary) {
    const auto alone = of_class(1);
    const auto undefined = std::isnan(alone) && labels.numel() > 0 && !labels.any().item<bool>();
    return {{options_.name, undefined ? without_positives : alone}};
  }

  std::vector<double> values;
  for (std::int64_t i = 0; i < classes; ++i) values.push_back(of_class(i));
  const auto each = torch::tensor(values, torch::kDouble);
  const auto support = counts(labels, torch::ones_like(labels), classes);
  return averaged(options_.name, options_.average, each, support, each.isnan().logical_not(), nan);
}

}  // namespace etude::inline v0::metrics
