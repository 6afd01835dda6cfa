#include "etude/callbacks/early_stopping.hpp"

#include <fmt/format.h>

#include "etude/any_trainer.hpp"
#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/metrics/best_model.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void EarlyStoppingCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  if (e.trainer.options().eval_dataset.empty())
    throw ArgumentError("eval_dataset is not set: EarlyStoppingCallback needs evaluations");
  const bool is_new = e.state.log_history.empty();
  if (is_new) state = {};
  state.watched.begin(e, is_new, "EarlyStoppingCallback");
  stop_when_patience_is_out(e);
  if (e.is_resumed && is_out_of_patience() && e.state.global_step < e.state.max_steps)
    message(e.args, LogLevel::warning,
            "nothing is left to train: {} had not improved in {} evaluations at step {}, which is resumed; "
            "to continue, raise early_stopping_patience ({}); to start from scratch, give another output_dir",
            metric(e), state.early_stopping_patience_counter, e.state.global_step, early_stopping_patience);
}

void EarlyStoppingCallback::on(const EvaluateAll& e) {
  if (!state.watched.counts(e, count_intermediate)) return;
  const auto value = state.watched.look(metric(e), e.metrics);
  if (!value) return;
  const bool greater = is_greater_better(e.args, metric(e), greater_is_better);
  const bool has_own_best = !watch_metric.empty() || !count_intermediate;
  const auto& bar = early_stopping_threshold_kind == EarlyStoppingThreshold::cumulative
                        ? state.last_improvement
                    : has_own_best ? state.best
                                   : e.state.best_metric;
  if (beats(*value, bar, greater, early_stopping_threshold)) {
    state.early_stopping_patience_counter = 0;
    state.last_improvement = value;
  } else {
    detail::count_up(state.early_stopping_patience_counter);
  }
  if (has_own_best && beats(*value, state.best, greater)) state.best = value;
  stop_when_patience_is_out(e);
}

void EarlyStoppingCallback::on(const TrainEnd& e) {
  if (!state.watched.end()) return;
  throw_if_missing(e);
  if (!state.watched.found)
    message(e.args, LogLevel::warning, "EarlyStoppingCallback had nothing to watch: no evaluation counts");
}

std::string EarlyStoppingCallback::metric(const Context& e) const {
  return watch_metric.empty() ? best_metric_name(e.args) : watch_metric;
}

void EarlyStoppingCallback::throw_if_missing(const Context& e) const {
  if (!state.watched.found && !state.watched.others.empty())
    state.watched.throw_if_missing(metric(e),
                                   watch_metric.empty() ? "metric_for_best_model" : "watch_metric");
}

void EarlyStoppingCallback::stop_when_patience_is_out(const Context& e) const {
  if (is_out_of_patience())
    e.control.request_stop(
        fmt::format("{} has not improved in {} evaluations", metric(e), early_stopping_patience));
}

}  // namespace etude::inline v0
