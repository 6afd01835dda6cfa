#include "etude/callbacks/top_k_checkpoints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "etude/base/message.hpp"
#include "etude/callbacks/checkpoint_keeper.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0 {

void TopKCheckpointsCallback::on(const TrainBegin& e) {
  detail::check_fields(*this);
  is_greatest_best = is_greater_better(e.args, watch_metric, greater_is_better);
  const bool is_new = copies.begin(e, save_dir, "top_checkpoints");
  watched.begin(e, is_new, "TopKCheckpointsCallback");
  if (is_new) {
    candidates.clear();
    ranked.clear();
  }
  // The run may have continued past this checkpoint, and may have replaced some copies since.
  std::erase_if(ranked, [&](const auto& entry) {
    std::error_code error;
    return !std::filesystem::exists(copies.folder / entry.first, error);
  });
}

void TopKCheckpointsCallback::on(const EvaluateAll& e) {
  if (!watched.counts(e, count_intermediate)) return;
  const auto value = watched.look(watch_metric, e.metrics);
  if (!value || !std::isfinite(*value) || e.state.global_step == 0) return;
  const RankedCheckpoint now{*value, e.state.global_step};
  if (std::ssize(ranked) >= k && !is_before(now, worst()->second)) return;
  auto name = fmt::format("checkpoint-{}-{}={:.4f}", now.global_step, watch_metric, now.value);
  std::ranges::replace(name, '/', '_');
  candidates[name] = now;
  copies.want(e, name);
}

void TopKCheckpointsCallback::on(const Save& e) {
  for (const auto& name : copies.make(e))
    if (const auto found = candidates.extract(name)) ranked.insert_or_assign(name, found.mapped());
  std::erase_if(candidates, [&](const auto& entry) { return !copies.expects(entry.first); });
  while (std::ssize(ranked) > k) {
    const auto last = worst();
    copies.remove(e, last->first);
    ranked.erase(last);
  }
}

void TopKCheckpointsCallback::on(const TrainEnd& e) {
  if (!watched.end()) return;
  watched.throw_if_missing(watch_metric);
  if (ranked.empty())
    message(e.args, LogLevel::warning, "TopKCheckpointsCallback has kept nothing: {}",
            watched.found ? fmt::format("{} was never a finite number after a step", watch_metric)
                          : "no evaluation counts");
}

bool TopKCheckpointsCallback::is_before(const RankedCheckpoint& a, const RankedCheckpoint& b) const {
  if (a.value != b.value) return is_better(a.value, b.value, is_greatest_best);
  return a.global_step < b.global_step;
}

RankedCheckpoints::iterator TopKCheckpointsCallback::worst() {
  return std::ranges::max_element(
      ranked, [&](const auto& a, const auto& b) { return is_before(a.second, b.second); });
}

}  // namespace etude::inline v0
