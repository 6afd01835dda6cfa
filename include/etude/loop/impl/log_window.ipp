#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "etude/base/linkage.hpp"
#include "etude/base/message.hpp"
#include "etude/loop/log_window.hpp"
#include "etude/metrics/speed.hpp"

namespace etude::inline v0 {

namespace detail {
/// A sum of counts, at most 9e18, which a count that was read from a file may exceed.
inline std::int64_t as_count(double sum) { return static_cast<std::int64_t>(std::min(sum, 9e18)); }
}  // namespace detail

ETUDE_INLINE void LogWindow::begin_training() {
  last_logged_step_ = 0;
  loss_ = RunningMean(args_.logging_nan_inf_filter);
  total_loss_ = RunningMean(true);
  grad_norm_.reset();
  non_finite_losses_ = 0;
  first_non_finite_loss_.reset();
}

ETUDE_INLINE void LogWindow::start_clock(std::int64_t tokens) {
  clock_start_ = std::chrono::steady_clock::now();
  tokens_at_start_ = tokens;
}

ETUDE_INLINE Metrics LogWindow::take_logs(const TrainerState& state) {
  const auto all = sums();
  Metrics logs{{"loss", take_loss(state.global_step, all)}};
  if (loss_.filters() && all.second > 0) logs["non_finite_losses"] = static_cast<double>(all.second);
  if (grad_norm_.defined()) logs["grad_norm"] = grad_norm_.item<double>();
  logs["learning_rate"] = learning_rate_;
  if (args_.include_num_input_tokens_seen != InputTokens::no)
    logs.update(token_speed("train", clock_start_, state.num_input_tokens_seen - tokens_at_start_));
  return logs;
}

ETUDE_INLINE LogWindow::Sums LogWindow::sums() {
  if (ranks_.world_size() == 1) return {loss_.sum(), loss_.non_finite()};
  // A process that only joined the others' steps has no losses.
  const double own = ranks_.several() && loss_.weight() == 0 ? 0 : loss_.sum();
  const auto all = ranks_.sum({own, static_cast<double>(loss_.non_finite())});
  return {all[0], detail::as_count(all[1])};
}

ETUDE_INLINE double LogWindow::take_loss(std::int64_t global_step, const Sums& sums) {
  const auto updates = static_cast<double>(global_step - last_logged_step_);
  const double mean = sums.first / updates;
  total_loss_.add(mean, updates);
  if (const auto count = sums.second; count > 0) {
    if (non_finite_losses_ == 0) first_non_finite_loss_ = loss_.first_non_finite();
    non_finite_losses_ += count;
  }
  loss_.reset();
  last_logged_step_ = global_step;
  return mean;
}

ETUDE_INLINE void LogWindow::sum_up(Metrics& summary, const Model& model) {
  if (total_loss_.weight() > 0) summary["train_loss"] = total_loss_.mean();
  if (non_finite_losses_ == 0) return;
  summary["non_finite_losses"] = static_cast<double>(non_finite_losses_);
  std::string broken;
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.is_floating_point() && !torch::isfinite(parameter.detach()).all().item<bool>()) {
      broken = fmt::format(", and {} now has such values, too", name);
      break;
    }
  message(args_, LogLevel::warning,
          "{} of the losses weren't finite{}{}: train_loss counts them as the mean of the others; "
          "TerminateOnNaNCallback stops at the first",
          non_finite_losses_,
          first_non_finite_loss_ ? fmt::format(", since step {}", *first_non_finite_loss_) : "", broken);
}

ETUDE_INLINE void LogWindow::save(TrainingProgress& progress) {
  progress.last_logged_step = last_logged_step_;
  progress.loss = loss_.state();
  if (ranks_.world_size() > 1) {
    const auto all = ranks_.sum({progress.loss.sum, static_cast<double>(progress.loss.filtered)});
    progress.loss.sum = all[0];
    progress.loss.filtered = detail::as_count(all[1]);
  }
  progress.total_loss = total_loss_.state();
  progress.non_finite_losses = non_finite_losses_;
  progress.first_non_finite_loss = first_non_finite_loss_;
  progress.grad_norm = grad_norm_.defined() ? std::optional(grad_norm_.item<double>()) : std::nullopt;
  progress.learning_rate = learning_rate_;
}

ETUDE_INLINE void LogWindow::load(const TrainingProgress& progress) {
  last_logged_step_ = progress.last_logged_step;
  auto own = progress.loss;  // each process has an equal part of it
  own.sum /= static_cast<double>(ranks_.world_size());
  if (!ranks_.is_first()) own.filtered = 0;
  loss_.load_state(own);
  total_loss_.load_state(progress.total_loss);
  non_finite_losses_ = progress.non_finite_losses;
  first_non_finite_loss_ = progress.first_non_finite_loss;
  if (progress.grad_norm) grad_norm_ = torch::tensor(*progress.grad_norm, torch::kDouble);
  learning_rate_ = progress.learning_rate;
}

}  // namespace etude::inline v0
