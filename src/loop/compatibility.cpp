#include "compatibility.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>

#include "etude/base/faults.hpp"
#include "etude/libtorch/autocast.hpp"
#include "etude/libtorch/device_graph.hpp"
#include "etude/loop/core.hpp"
#include "etude/loop/sharded_parameters.hpp"
#include "etude/model/carried_state.hpp"
#include "etude/model/modules.hpp"
#include "etude/model/units.hpp"

namespace etude::inline v0 {

namespace {

template <class... Events>
consteval std::size_t count_of_events(events<Events...>) {
  return sizeof...(Events);
}

/// Describes callbacks that need events that aren't raised, or change batches that can't be changed.
detail::Faults callbacks_without_batches(const EventSource& events) {
  const auto handled = events.handlers_of(Vocabulary{});
  std::map<std::string_view, std::size_t> events_of;
  for (const auto& event : handled)
    for (const auto& [callback, writes] : event.callbacks) ++events_of[callback];
  detail::Faults found;
  for (const auto& [event, callbacks] : handled) {
    const bool has_batch = event == short_type_name<BatchFetched>();
    if (!has_batch && event != short_type_name<ForwardBegin>()) continue;
    for (const auto& [callback, writes] : callbacks) {
      // A callback that handles all events needs none in particular.
      if (writes || (has_batch && events_of[callback] < count_of_events(Vocabulary{})))
        found.add(
            "{} {} {}: can't be used with backward(loss), since the program keeps its "
            "batches to itself; step(batch) gives them to callbacks",
            callback, writes ? "changes the batch of" : "handles", event);
    }
  }
  return found;
}

/// Checks for arguments with which a model can't carry state from batch to batch.
void check_carried_state(const RunSettings& run, const Trained& trained) {
  if (trained.carried.empty()) return;
  detail::Faults found;
  const auto state = fmt::format("a model that carries state from batch to batch ({})",
                                 fmt::join(trained.carried.names(), ", "));
  const auto refuse = [&](bool given, const char* name, const char* why) {
    found.refuse(given, name, fmt::format("with {}, {}", state, why));
  };
  const auto& args = run.args;
  refuse(args.auto_microbatching, "auto_microbatching", "whose rows can't be run in parts");
  refuse(args.auto_find_batch_size, "auto_find_batch_size", "which has the rows of one batch size");
  refuse(args.cuda_graph, "cuda_graph", "which a replayed step wouldn't see");
  if (args.gradient_checkpointing)
    for (const auto& unit : units(trained.model))
      refuse(std::ranges::any_of(
                 unit.module->modules(),
                 [](const auto& each) { return dynamic_cast<CarriedStateImpl*>(each.get()) != nullptr; }),
             "gradient_checkpointing", "in a unit that runs twice");
  if (run.step_sharing() == StepSharing::in_turn)
    found.add("each optimizer has its own loss: must share one with {}, which would advance with each loss",
              state);
  if (trained.train_dataloader && trained.train_dataloader->options().shuffle)
    found.add(
        "train_sampling_strategy is random: must be sequential with {}, or train_dataset one of "
        "etude::parallel_streams",
        state);
  found.check();
}

/// Checks for arguments with which a module can't follow another one.
void check_targets(const RunSettings& run, const Model& model) {
  const auto modules = std::dynamic_pointer_cast<ModulesImpl>(model.module());
  if (!modules || !modules->has_targets()) return;
  detail::Faults found;
  if (run.ranks.several() && run.shard_stage == ShardStage::parameters)
    found.add(
        "ShardedDataParallel<3> keeps no whole parameters, which a target_of another module follows: use "
        "stage 2");
  found.refuse(run.args.pure_bf16, "pure_bf16",
               "with a target_of another module, whose small moves bfloat16 rounds away");
  found.check();
}

/// Checks for arguments and callbacks that don't work with the shards of several processes.
void check_shards(const EventSource& events) {
  const auto& core = events.core();
  if (!core.shard_stage) return;
  detail::Faults found;
  found.refuse(core.args.auto_microbatching && *core.shard_stage != ShardStage::optimizer_state,
               "auto_microbatching",
               fmt::format("with ShardedDataParallel<{}>, whose gradients can't be computed again",
                           static_cast<int>(*core.shard_stage)));
  const bool has_shares = core.shard_stage == ShardStage::parameters;
  found.refuse(core.args.auto_find_batch_size && has_shares, "auto_find_batch_size",
               "with ShardedDataParallel<3>");
  found.check();
  if (const auto reader = has_shares ? events.reader_of_parameters() : ""; !reader.empty())
    detail::refuse_reader(reader);
}

}  // namespace

void check_device(const RunSettings& run) {
  const auto& args = run.args;
  detail::Faults found;
  const auto no_float16 =
      fmt::format("on the CPU with LibTorch {}, which computes in float16 since 2.3", TORCH_VERSION);
  found.refuse(args.fp16 && !computes_in_float16(run.device.type()), "fp16", no_float16);
  found.refuse(args.fp16_full_eval && !computes_in_float16(run.device.type()), "fp16_full_eval", no_float16);
  found.refuse(args.tf32.value_or(false) && !run.device.is_cuda(), "tf32", "or unset without a GPU");
  const auto in_units = "with ShardedDataParallel<3>, which keeps the weights in several processes";
  const bool has_no_weights = run.shard_stage == ShardStage::parameters;
  found.refuse(args.bf16_full_eval && has_no_weights, "bf16_full_eval", in_units);
  found.refuse(args.fp16_full_eval && has_no_weights, "fp16_full_eval", in_units);
  found.refuse(args.eval_enable_grad && has_no_weights, "eval_enable_grad", in_units);
  found.refuse(args.offload_optimizer && run.device.is_cpu(), "offload_optimizer",
               "on the CPU, in whose memory the moments are");
  if (args.cuda_graph && !has_device_graphs(run.device.type()))
    found.refuse(true, "cuda_graph",
                 run.device.is_cpu()
                     ? "on the CPU"
                     : fmt::format("on {}, for which no graphs are registered (a GPU's are by including "
                                   "etude/libtorch/cuda_graph.hpp in a source file of the program)",
                                   run.device.str()));
  if (args.on_non_finite != OnNonFinite::ignore && args.cuda_graph)
    found.add(
        "on_non_finite is {}: must be ignore with cuda_graph, which replays the update with the "
        "rest of the step; TerminateOnNaNCallback stops after it",
        args.on_non_finite);
  found.refuse(args.cuda_graph && run.ranks.several(), "cuda_graph",
               "with several processes, whose messages can't be captured");
  found.check();
}

void check_optimizers(const RunSettings& run, const Trained& trained) {
  const auto sharing = run.step_sharing();
  const bool is_apart = sharing != StepSharing::together;
  const bool are_several = trained.optimizers.size() > 1 || is_apart;
  const std::string_view with = !is_apart                         ? "several optimizers"
                                : sharing == StepSharing::by_hand ? "a training_step that makes its own steps"
                                                                  : "optimizers that have their own losses";
  const auto with_them = fmt::format("with {}", with);
  detail::Faults found;
  for (const auto& each : trained.optimizers) {
    const auto type = each.optimizer->type();
    if (each.optimizer->needs_closure()) {
      found.refuse(run.args.auto_microbatching, "auto_microbatching",
                   "with an optimizer that evaluates whole batches repeatedly");
      found.refuse(trained.scaler.has_value(), "fp16",
                   fmt::format("with {}, which evaluates its loss several times per step", type));
      if (are_several)
        found.add("{} evaluates its loss several times per step: can't be used with {}", type, with);
    }
    found.refuse(run.args.pure_bf16 && !each.optimizer->traits().rounds_bfloat16, "pure_bf16",
                 fmt::format("with {}, which doesn't round in its updates: {} do", type,
                             optimizers_with(&OptimizerTraits::rounds_bfloat16)));
    if (each.every != 1 && sharing == StepSharing::by_hand)
      found.add("every is {} for the optimizer '{}': must be 1 with {}", each.every, each.name, with);
  }
  found.refuse(run.args.cuda_graph && are_several, "cuda_graph", with_them);
  found.refuse(run.args.auto_microbatching && is_apart, "auto_microbatching", with_them);
  if (run.shard_stage == ShardStage::parameters && is_apart)
    found.add("ShardedDataParallel<3> can't be used with {}", with);
  found.check();
}

void check_model(const EventSource& events) {
  const auto& core = events.core();
  check_carried_state(core, core);
  check_targets(core, core.model);
  check_shards(events);
  detail::Faults found;
  found.refuse(core.args.cuda_graph && core.options.loss.counts_items(), "cuda_graph",
               "with a loss that takes the number of items, which a replayed step couldn't give it: take the "
               "mean of each batch");
  found.check();
}

void check_given_losses(const EventSource& events) {
  const auto& core = events.core();
  auto found = callbacks_without_batches(events);
  constexpr auto why = "with backward(loss), whose forward pass the program makes";
  found.refuse(core.args.cuda_graph, "cuda_graph", why);
  found.refuse(core.args.auto_microbatching, "auto_microbatching", why);
  found.refuse(core.args.gradient_checkpointing, "gradient_checkpointing", why);
  if (core.args.compiled_graph == CompiledGraphMode::required)
    found.add("compiled_graph is required: must be auto or off {}", why);
  if (core.args.label_smoothing_factor != 0)
    found.add(
        "label_smoothing_factor is {}: must be 0 with backward(loss), whose loss the program "
        "computes",
        core.args.label_smoothing_factor);
  if (core.shard_stage == ShardStage::gradients || core.shard_stage == ShardStage::parameters)
    found.add(
        "ShardedDataParallel<{}> can't be used with backward(loss): must be ShardedDataParallel<1> "
        "or DistributedDataParallel",
        core.shard_stage == ShardStage::gradients ? 2 : 3);
  for (const auto& [name, own] : core.options.optimizers) {
    if (own.compute_loss)
      found.add(
          "the optimizer '{}' has a compute_loss: must have none with backward(loss), whose loss the "
          "program computes",
          name);
    if (own.every != 1)
      found.add(
          "every is {} for the optimizer '{}': must be 1 with backward(loss); an update() leaves "
          "out optimizers "
          "that no loss has given gradients",
          own.every, name);
  }
  for (const auto& each : core.optimizers)
    if (each.optimizer->needs_closure())
      found.add(
          "{} evaluates its loss several times per step: can't be used with "
          "backward(loss)",
          each.optimizer->type());
  found.check();
}

}  // namespace etude::inline v0
