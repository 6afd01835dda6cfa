#include "etude/loop/log_window.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <set>

#include "etude/base/counting.hpp"
#include "etude/base/message.hpp"
#include "etude/metrics/speed.hpp"

namespace etude::inline v0 {

void LogWindow::begin_training() {
  last_logged_step_ = 0;
  loss_ = RunningMean(args_.logging_nan_inf_filter);
  non_finite_before_ = {};
  total_loss_ = RunningMean(true);
  updates_.clear();
  non_finite_losses_ = 0;
  first_non_finite_loss_.reset();
}

void LogWindow::start_clock(std::int64_t tokens) {
  clock_start_ = window_start_ = std::chrono::steady_clock::now();
  waited_ = 0;
  tokens_at_start_ = tokens;
}

Metrics LogWindow::take_logs(const TrainerState& state) {
  const auto all = sums();
  warn_of_slow_rank(state.global_step - last_logged_step_, all.waits);
  Metrics logs{{"loss", take_loss(state.global_step, all)}};
  if (loss_.filters() && all.non_finite.count > 0)
    logs["non_finite_losses"] = static_cast<double>(all.non_finite.count);
  for (const auto& [optimizer, grad_norm, learning_rate] : updates_) {
    const auto prefix = optimizer.empty() ? "" : optimizer + '_';
    if (grad_norm.defined()) logs[prefix + "grad_norm"] = grad_norm.item<double>();
    logs[prefix + "learning_rate"] = learning_rate;
  }
  if (args_.include_num_input_tokens_seen != InputTokens::no)
    logs.update(token_speed("train", clock_start_, state.num_input_tokens_seen - tokens_at_start_));
  return logs;
}

LogWindow::LastUpdate& LogWindow::update_of(const std::string& optimizer) {
  for (auto& update : updates_)
    if (update.optimizer == optimizer) return update;
  return updates_.emplace_back(LastUpdate{.optimizer = optimizer});
}

LogWindow::Sums LogWindow::sums() {
  const auto own_non_finite = loss_.non_finite_places().size();
  if (ranks_.world_size() == 1) return {loss_.sum(), non_finite_steps(own_non_finite > 0), {}};
  // A process that only joined the others' steps has no losses.
  const double own = ranks_.several() && loss_.weight() == 0 ? 0 : loss_.sum();
  // The loss, the number of steps whose loss wasn't finite, and the wait of each rank in its own slot.
  std::vector<double> values(2 + static_cast<std::size_t>(ranks_.world_size()));
  values[0] = own;
  values[1] = static_cast<double>(own_non_finite);
  values[2 + static_cast<std::size_t>(ranks_.rank())] = waited_;
  const auto all = ranks_.sum(std::move(values));
  return {all[0], non_finite_steps(all[1] > 0), {all.begin() + 2, all.end()}};
}

LogWindow::NonFiniteSteps LogWindow::non_finite_steps(bool are_any) {
  auto steps = non_finite_before_;
  if (!are_any) return steps;
  std::set<std::int64_t> in_any;
  for (const auto& of_rank : ranks_.gather_values(loss_.non_finite_places()))
    for (const auto& step : of_rank) in_any.insert(step.get<std::int64_t>());
  for (const auto step : in_any) {
    detail::count_up(steps.count);
    if (!steps.first) steps.first = step;
  }
  return steps;
}

void LogWindow::warn_of_slow_rank(std::int64_t steps, const std::vector<double>& waits) {
  constexpr std::int64_t enough_steps = 10;
  const auto elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - window_start_).count();
  if (waits.size() < 2 || steps < enough_steps || !ranks_.several()) return;
  if (const auto slow = slow_rank_.add(waits, elapsed))
    message(args_, LogLevel::warning,
            "rank {} is slow: the other processes waited for it during {:.0f} % of the last {} steps",
            slow->rank, 100 * slow->share, steps);
}

double LogWindow::take_loss(std::int64_t global_step, const Sums& sums) {
  const auto updates = static_cast<double>(global_step - last_logged_step_);
  const double mean = sums.loss / updates;
  total_loss_.add(mean, updates);
  if (const auto& [count, first] = sums.non_finite; count > 0) {
    if (non_finite_losses_ == 0) first_non_finite_loss_ = first;
    non_finite_losses_ += count;
  }
  loss_.reset();
  non_finite_before_ = {};
  last_logged_step_ = global_step;
  window_start_ = std::chrono::steady_clock::now();
  waited_ = 0;
  return mean;
}

void LogWindow::sum_up(Metrics& summary, const Model& model) {
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

void LogWindow::save(TrainingProgress& progress) {
  progress.last_logged_step = last_logged_step_;
  const auto all = ranks_.sum({loss_.state().sum, static_cast<double>(loss_.non_finite_places().size())});
  const auto non_finite = non_finite_steps(all[1] > 0);
  progress.loss = loss_.state();
  progress.loss.sum = all[0];
  progress.loss.filtered = non_finite.count;
  progress.loss.first_filtered = non_finite.first;
  progress.total_loss = total_loss_.state();
  progress.non_finite_losses = non_finite_losses_;
  progress.first_non_finite_loss = first_non_finite_loss_;
  progress.grad_norm.reset();
  progress.named_updates.clear();
  for (const auto& [optimizer, norm, learning_rate] : updates_) {
    const auto grad_norm = norm.defined() ? std::optional(norm.item<double>()) : std::nullopt;
    if (!optimizer.empty()) {
      progress.named_updates.push_back({optimizer, grad_norm, learning_rate});
      continue;
    }
    progress.grad_norm = grad_norm;
    progress.learning_rate = learning_rate;
  }
}

void LogWindow::load(const TrainingProgress& progress) {
  last_logged_step_ = progress.last_logged_step;
  auto own = progress.loss;  // each process has an equal part of it
  own.sum /= static_cast<double>(ranks_.world_size());
  non_finite_before_ = {std::exchange(own.filtered, 0), std::exchange(own.first_filtered, std::nullopt)};
  loss_.load_state(own);
  total_loss_.load_state(progress.total_loss);
  non_finite_losses_ = progress.non_finite_losses;
  first_non_finite_loss_ = progress.first_non_finite_loss;
  updates_.clear();
  const auto restore = [&](const std::string& optimizer, std::optional<double> norm, double rate) {
    set_learning_rate(rate, optimizer);
    if (norm) set_grad_norm(torch::tensor(*norm, torch::kDouble), optimizer);
  };
  for (const auto& saved : progress.named_updates)
    restore(saved.optimizer, saved.grad_norm, saved.learning_rate);
  if (progress.named_updates.empty()) restore("", progress.grad_norm, progress.learning_rate);
}

}  // namespace etude::inline v0
