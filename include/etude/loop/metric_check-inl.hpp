#pragma once

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "etude/linkage.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/metric_check.hpp"
#include "etude/metrics/best_model.hpp"

namespace etude {

ETUDE_INLINE DryRun::DryRun(TrainerCore& core)
    : core_(core),
      random_(random_state(core.options.generators)),
      pending_logs_(core.pending_logs),
      compute_metrics_(core.options.compute_metrics) {
  for (const auto& [name, buffer] : core.model.named_buffers())
    buffers_.emplace_back(buffer, buffer.detach().clone());
}

ETUDE_INLINE DryRun::~DryRun() {
  core_.options.compute_metrics = std::move(compute_metrics_);
  core_.pending_logs = std::move(pending_logs_);
  load_random_state(random_, core_.options.generators);
  const torch::NoGradGuard no_grad;
  for (auto& [buffer, copy] : buffers_)
    if (buffer.sizes() == copy.sizes() && buffer.scalar_type() == copy.scalar_type())
      buffer.copy_(copy);
    else
      buffer.set_data(copy);
}

ETUDE_INLINE bool is_metric_unsure(const TrainerCore& core) {
  const auto& datasets = core.options.eval_dataset;
  const auto name = best_metric_name(core.args);
  if (core.args.eval_strategy == IntervalStrategy::no && !core.args.eval_on_start) return false;
  if (!core.options.args.metric_for_best_model || datasets.empty() || core.state.best_metric) return false;
  if (name == "eval_loss" && !datasets.named()) return false;
  if (std::ranges::any_of(core.state.log_history, [&](const auto& line) { return line.contains(name); }))
    return false;
  return std::ranges::all_of(datasets, [](const auto& dataset) { return dataset.second.is_indexed(); });
}

}  // namespace etude
