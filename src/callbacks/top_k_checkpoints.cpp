#include "etude/callbacks/top_k_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "etude/base/message.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void TopKCheckpointsCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  is_greatest_best = is_greater_better(e.args, watch_metric, greater_is_better);
  const bool is_new = e.state.global_step == 0;
  if (is_new) state = {};
  state.copies.begin(e, save_dir, "top_checkpoints");
  state.watched.begin(e, is_new, "TopKCheckpointsCallback");
  // The run may have continued past this checkpoint, and may have replaced some copies since.
  std::erase_if(state.ranked, [&](const auto& entry) {
    std::error_code error;
    return !std::filesystem::exists(state.copies.folder / entry.first, error);
  });
}

void TopKCheckpointsCallback::on(const EvaluateAll& e) {
  if (!state.watched.counts(e, count_intermediate)) return;
  const auto value = state.watched.look(watch_metric, e.metrics);
  if (!value || !std::isfinite(*value) || e.state.global_step == 0) return;
  const RankedCheckpoint now{*value, e.state.global_step};
  if (std::ssize(state.ranked) >= k && !is_before(now, worst()->second)) return;
  auto name = fmt::format("checkpoint-{}-{}={:.4f}", now.global_step, watch_metric, now.value);
  std::ranges::replace(name, '/', '_');
  state.candidates[name] = now;
  state.copies.want(e, name);
}

void TopKCheckpointsCallback::on(const Save& e) {
  for (const auto& name : state.copies.make(e))
    if (const auto found = state.candidates.extract(name))
      state.ranked.insert_or_assign(name, found.mapped());
  std::erase_if(state.candidates, [&](const auto& entry) { return !state.copies.expects(entry.first); });
  while (std::ssize(state.ranked) > k) {
    const auto last = worst();
    state.copies.remove(e, last->first);
    state.ranked.erase(last);
  }
}

void TopKCheckpointsCallback::on(const TrainEnd& e) {
  if (!state.watched.end()) return;
  state.watched.throw_if_missing(watch_metric);
  if (state.ranked.empty())
    message(e.args, LogLevel::warning, "TopKCheckpointsCallback has kept nothing: {}",
            state.watched.found ? fmt::format("{} was never a finite number after a step", watch_metric)
                                : "no evaluation counts");
}

bool TopKCheckpointsCallback::is_before(const RankedCheckpoint& a, const RankedCheckpoint& b) const {
  if (a.value != b.value) return is_better(a.value, b.value, is_greatest_best);
  return a.global_step < b.global_step;
}

RankedCheckpoints::iterator TopKCheckpointsCallback::worst() {
  return std::ranges::max_element(
      state.ranked, [&](const auto& a, const auto& b) { return is_before(a.second, b.second); });
}

}  // namespace etude::inline v0
