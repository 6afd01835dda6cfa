#include "given_losses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/loop/core.hpp"

namespace etude::inline v0::detail {

namespace {

template <class... Events>
consteval std::size_t count_of_events(events<Events...>) {
  return sizeof...(Events);
}

/// Describes callbacks that need events that aren't raised, or change batches that can't be changed.
std::vector<std::string> callbacks_without_batches(const EventSource& events) {
  const auto handled = events.handlers_of(Vocabulary{});
  std::map<std::string_view, std::size_t> events_of;
  for (const auto& event : handled)
    for (const auto& [callback, writes] : event.callbacks) ++events_of[callback];
  std::vector<std::string> found;
  for (const auto& [event, callbacks] : handled) {
    const bool has_batch = event == short_type_name<BatchFetched>();
    if (!has_batch && event != short_type_name<ForwardBegin>()) continue;
    for (const auto& [callback, writes] : callbacks) {
      // A callback that handles all events needs none in particular.
      if (writes || (has_batch && events_of[callback] < count_of_events(Vocabulary{})))
        found.push_back(
            fmt::format("{} {} {}: can't be used with backward(loss), since the program keeps its "
                        "batches to itself; step(batch) gives them to callbacks",
                        callback, writes ? "changes the batch of" : "handles", event));
    }
  }
  return found;
}

}  // namespace

void check_given_losses(const EventSource& events) {
  const auto& core = events.core();
  auto found = callbacks_without_batches(events);
  const auto refuse = [&](bool is_set, std::string_view argument) {
    if (is_set)
      found.push_back(fmt::format(
          "{} is true: must be false with backward(loss), whose forward pass the program makes", argument));
  };
  refuse(core.args.cuda_graph, "cuda_graph");
  refuse(core.args.auto_microbatching, "auto_microbatching");
  refuse(core.args.gradient_checkpointing, "gradient_checkpointing");
  if (core.args.label_smoothing_factor != 0)
    found.push_back(
        fmt::format("label_smoothing_factor is {}: must be 0 with backward(loss), whose loss the program "
                    "computes",
                    core.args.label_smoothing_factor));
  if (core.shard_stage == ShardStage::gradients || core.shard_stage == ShardStage::parameters)
    found.push_back(fmt::format(
        "ShardedDataParallel<{}> can't be used with backward(loss): must be ShardedDataParallel<1> "
        "or DistributedDataParallel",
        core.shard_stage == ShardStage::gradients ? 2 : 3));
  for (const auto& [name, own] : core.options.optimizers) {
    if (own.compute_loss)
      found.push_back(fmt::format(
          "the optimizer '{}' has a compute_loss: must have none with backward(loss), whose loss the "
          "program computes",
          name));
    if (own.every != 1)
      found.push_back(
          fmt::format("every is {} for the optimizer '{}': must be 1 with backward(loss); an update() leaves "
                      "out optimizers "
                      "that no loss has given gradients",
                      own.every, name));
  }
  for (const auto& each : core.optimizers)
    if (each.optimizer->needs_closure())
      found.push_back(
          fmt::format("{} evaluates its loss several times per step: can't be used with "
                      "backward(loss)",
                      each.optimizer->type()));
  if (!found.empty()) throw ArgumentError(fmt::format("{}", fmt::join(found, "\n")));
}

}  // namespace etude::inline v0::detail
