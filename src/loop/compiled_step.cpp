#include "etude/loop/compiled_step.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/faults.hpp"
#include "etude/base/message.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/torch_error.hpp"
#include "etude/loop/compute_loss.hpp"
#include "etude/loop/event_source.hpp"

namespace etude::inline v0 {

namespace detail {

namespace {

/// A reason may name the sizes of a batch, which may be different each time.
constexpr std::size_t most_reasons = 5;

std::shared_ptr<HasCompiledGraph> compiled_graph_of(const Model& model) {
  auto graph = std::dynamic_pointer_cast<HasCompiledGraph>(model.module());
  return graph && graph->has_compiled_graph() ? graph : nullptr;
}

/// The name of the first module inside the model that has a compiled graph; empty if there is none.
std::string inner_graph_of(const Model& model) {
  const auto module = model.module();
  if (!module) return {};
  for (const auto& inner : module->named_modules("", /*include_self=*/false))
    if (const auto* graph = dynamic_cast<const HasCompiledGraph*>(inner.value().get());
        graph && graph->has_compiled_graph())
      return inner.key();
  return {};
}

/// Says which callbacks may replace the loss of a step; empty if none may.
std::string writers_of_loss(const EventSource& events) {
  if (!events.is_written<BackwardBegin>()) return {};
  std::vector<std::string> writers;
  for (const auto& each : events.handlers_of(etude::events<BackwardBegin>{}))
    for (const auto& [name, writes] : each.callbacks)
      if (writes) writers.push_back(name);
  return fmt::format("{} may replace the loss in BackwardBegin", fmt::join(writers, " and "));
}

/// The reasons in the training's settings why no step can use the model's compiled graph. Empty if there are
/// none, or if neither the model nor a submodule has a graph.
std::vector<std::string> reasons_against_graph(const EventSource& events) {
  const auto& core = events.core();
  const auto& args = core.args;
  std::vector<std::string> reasons;
  const auto add = [&](bool applies, std::string reason) {
    if (applies) reasons.push_back(std::move(reason));
  };
  if (!compiled_graph_of(core.model)) {
    const auto inner = inner_graph_of(core.model);
    add(!inner.empty(),
        fmt::format("only the submodule {} has a compiled graph, not {} itself", inner, core.model.name()));
    return reasons;
  }
  add(core.overrides.training_step, "the trainer overrides training_step");
  add(core.overrides.compute_loss, "the trainer overrides compute_loss");
  add(static_cast<bool>(core.options.compute_loss),
      "compute_loss is set, but the graph computes the model's own loss");
  add(core.step_sharing() == StepSharing::in_turn, "each optimizer has its own compute_loss");
  add(static_cast<bool>(core.options.loss), "loss is set, but the graph computes the model's own loss");
  add(args.label_smoothing_factor != 0,
      fmt::format("label_smoothing_factor is {}, but the graph doesn't smooth labels",
                  args.label_smoothing_factor));
  const auto writers = writers_of_loss(events);
  add(!writers.empty(), writers);
  add(args.gradient_checkpointing, "gradient_checkpointing is true, but the graph was compiled without it");
  add(args.cuda_graph, "cuda_graph is true, which captures forward instead");
  add(core.ranks.several() && core.shard_stage == ShardStage::parameters,
      "ShardedDataParallel<3> divides the weights among the processes");
  add(args.full_determinism, "full_determinism is true, but compiled code may sum in any order");
  return reasons;
}

/// The reason why the model's graph can't be used now; empty if it can, or if there is no graph.
std::string fault_of_graph(const TrainerCore& core) {
  const auto graph = compiled_graph_of(core.model);
  const auto of_arguments = autocast_dtype(core.args);
  return graph ? graph->why_no_graph(of_arguments ? of_arguments : autocast_in_force(core.device.type()))
               : "";
}

}  // namespace

}  // namespace detail

void CompiledStep::check(const EventSource& events) {
  const auto& core = events.core();
  if (core.args.compiled_graph != CompiledGraphMode::required) return;
  auto reasons = detail::reasons_against_graph(events);
  if (reasons.empty() && !detail::compiled_graph_of(core.model))
    reasons.push_back(fmt::format(
        "{} has no compiled graph (etude::load_exported loads those of a file with run_compiled_code = true)",
        core.model.name()));
  if (reasons.empty())
    if (auto fault = detail::fault_of_graph(core); !fault.empty()) reasons.push_back(std::move(fault));
  detail::Faults found;
  for (const auto& reason : reasons)
    found.add("compiled_graph is required: must be auto or off, since {}", reason);
  found.check();
}

void CompiledStep::begin_training(const EventSource& events) {
  const auto& core = events.core();
  graph_.reset();
  if (core.args.compiled_graph == CompiledGraphMode::off) return;
  check(events);
  auto reasons = detail::reasons_against_graph(events);
  if (reasons.empty()) {
    graph_ = detail::compiled_graph_of(core.model);
    // The graph is checked again for each batch: a callback may freeze or unfreeze parameters meanwhile.
    if (auto fault = detail::fault_of_graph(core); !fault.empty()) reasons.push_back(std::move(fault));
  }
  for (const auto& reason : reasons)
    if (is_news(reason)) warn(core.args, "", reason);
}

std::optional<LossOutput> CompiledStep::loss_of(const EventSource& events, const Batch& given) {
  const auto& core = events.core();
  // Its loss may be NaN, and the zero that takes its place is differentiated through the outputs.
  if (core.group.adds_nothing()) return {};
  const auto graph = graph_.lock();
  if (!graph) return {};
  auto why_not = detail::writers_of_loss(events);  // callbacks may have been added
  if (why_not.empty()) {
    std::optional<Batch> cast;
    const auto& batch = in_type_of_weights(core, given, cast);
    auto computed = with_place(
        [&] {
          return in_precision(core, [&]() -> LossOutput {
            auto result = graph->forward_compiled(inputs_with_labels(core.model, batch));
            why_not = std::move(result.why_not);
            return result.outputs.empty() ? LossOutput() : own_loss(result.outputs);
          });
        },
        [] { return "in the compiled graph"; });
    if (computed.loss.defined()) return computed;
  }
  const auto place = [&] {
    return place_of(core.model, fmt::format("step {}", core.state.global_step + 1), given);
  };
  if (core.args.compiled_graph == CompiledGraphMode::required)
    throw DataError(
        fmt::format("compiled_graph is required, but can't be used for {}: {}", place(), why_not));
  if (is_news(why_not)) warn(core.args, " for " + place(), why_not);
  return {};
}

bool CompiledStep::is_news(const std::string& reason) {
  return given_.size() < detail::most_reasons && given_.insert(reason).second;
}

void CompiledStep::warn(const TrainingArguments& args, std::string_view where,
                        std::string_view reason) const {
  message(args, LogLevel::warning, "the compiled graph isn't used{}: {}{}", where, reason,
          given_.size() == detail::most_reasons ? " (further reasons won't be reported)" : "");
}

}  // namespace etude::inline v0
