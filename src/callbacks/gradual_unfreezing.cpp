#include "etude/callbacks/gradual_unfreezing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "etude/base/counting.hpp"
#include "etude/base/error.hpp"
#include "etude/base/message.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// Whether `times` intervals have passed since the training began.
bool has_passed(const Context& e, const Interval& interval, std::int64_t times) {
  if (interval.unit() == IntervalUnit::epochs)
    return intervals_in(e.state.epoch, interval.value()) >= static_cast<double>(times);
  return e.state.global_step >= interval.steps(e.state.max_steps) * times;
}

void check_moment_of_training(std::string_view field, const Interval& interval) {
  if (!interval.is_valid() || !(interval.is_of_steps() || interval.unit() == IntervalUnit::epochs))
    throw ArgumentError(
        fmt::format("{} is {}: must be epochs, such as 1ep, or update steps, above 0", field, interval));
}

}  // namespace

}  // namespace detail

void GradualUnfreezingCallback::check(const Context& e) const {
  if (e.args.cuda_graph)
    throw ArgumentError(
        "cuda_graph is true: must be false with GradualUnfreezingCallback, since a captured step updates the "
        "same parameters each time");
  detail::check_moment_of_training("unfreeze_every", unfreeze_every);
  for (const auto& moment : unfreeze_at) detail::check_moment_of_training("unfreeze_at", moment);
  if (const auto groups = freezer->get_layer_groups().size(); unfreeze_at.size() >= groups)
    throw ArgumentError(fmt::format(
        "unfreeze_at has {} moments: must be at most {} for {} layer groups, of which the last always trains",
        unfreeze_at.size(), groups - 1, groups));
}

void GradualUnfreezingCallback::on(const TrainBegin& e) {
  freezer.emplace(e.model, ModelFreezer::Options{.freeze_batch_norms = freeze_batch_norms,
                                                 .layer_groups = layer_groups,
                                                 .keep_frozen = true});
  check(e);
  freezer->freeze({.from_index = 0, .to_index = -1, .set_modules_as_eval = set_modules_as_eval});
  unfrozen = 0;
  unfreeze(e);
}

/// The number of groups that should be trained by now.
std::size_t GradualUnfreezingCallback::due(const Context& e) const {
  const auto groups = freezer->get_layer_groups().size();
  std::size_t count = 1;
  if (unfreeze_at.empty())
    while (count < groups && detail::has_passed(e, unfreeze_every, static_cast<std::int64_t>(count))) ++count;
  else
    count += static_cast<std::size_t>(std::ranges::count_if(
        unfreeze_at, [&](const Interval& moment) { return detail::has_passed(e, moment, 1); }));
  return count;
}

void GradualUnfreezingCallback::unfreeze(const Context& e) {
  const auto count = due(e);
  if (count <= unfrozen) return;
  const auto from_end = [](std::size_t position) { return -static_cast<std::int64_t>(position); };
  const auto changed = freezer->unfreeze({.from_index = from_end(unfrozen + 1), .to_index = from_end(count)});
  if (unfrozen > 0)
    for (const auto& group : changed)
      message(e.args, LogLevel::info, "{} is unfrozen at step {}", group.name, e.state.global_step);
  unfrozen = count;
}

void GradualUnfreezingCallback::on(const TrainEnd&) {
  if (freezer) freezer->unfreeze({.from_index = -1, .to_index = 0});
  freezer.reset();
}

}  // namespace etude::inline v0
