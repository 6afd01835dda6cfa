#include "etude/tune/memory_estimate.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/libtorch/allocation_counter.hpp"
#include "etude/libtorch/storage.hpp"
#include "etude/reflect/check_fields.hpp"

namespace etude::inline v0::detail {

void check(const MemoryEstimateOptions& options, const Context& context) {
  check_fields(options);
  if (const auto world_size = context.args.world_size(); world_size > 1)
    throw ArgumentError(
        fmt::format("the number of processes is {}: must be 1 to estimate memory: give the number as the "
                    "world_size of the options, in one process",
                    world_size));
  if (!context.trainer.options().train_dataset)
    throw ArgumentError("train_dataset is not set: estimate_memory() needs it");
}

namespace {

/// The first micro-batches of an epoch, at most two: further ones add nothing but their own size.
std::vector<Batch> first_batches(const TrainingDryRun& dry_run, const DataLoader& loader,
                                 std::int64_t count) {
  std::vector<Batch> group;
  auto batches = loader.begin_epoch(0);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 2); ++i)
    if (const auto batch = batches.next()) group.push_back(dry_run.on_device(*batch));
  if (group.empty()) throw DataError("train_dataset gave no batches");
  return group;
}

std::int64_t bytes_in(const Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// The part of the optimizer's state that `offload_optimizer` keeps on the host.
std::int64_t bytes_elsewhere(Optimizer& optimizer, torch::Device device) {
  std::vector<torch::Tensor> tensors;
  for (auto& [name, tensor] : optimizer.state())
    if (!name.ends_with(".step") && tensor.device().type() != device.type())
      tensors.push_back(std::move(tensor));
  return libtorch::storage_bytes(tensors);
}

std::int64_t bytes_of_batches(const std::vector<Batch>& group, std::int64_t count) {
  std::int64_t bytes = 0;
  for (const auto& batch : group) bytes += bytes_in(batch.inputs) + bytes_in(batch.labels);
  return bytes / static_cast<std::int64_t>(group.size()) * count;
}

/// The memory apart from weights and moments: for forward and backward passes when gradients already exist,
/// and for a whole step, including gradients that exist only during it.
struct MeasuredStep {
  std::int64_t activations = 0;
  std::int64_t step = 0;
  std::int64_t gradients = 0;
  bool keeps_gradients = false;  ///< between steps
};

MeasuredStep measure_step(TrainingDryRun& dry_run, const std::vector<Batch>& group, torch::Device device) {
  auto& optimizer = dry_run.optimizer();
  const std::vector<Batch> one{group.front()};
  AllocationCounter counter(device);
  dry_run.set_learning_rate(0);
  // The optimizer creates its state in its first step, and fp16 may skip steps until the loss scale fits.
  constexpr int most_skipped = 30;
  for (int i = 0; i < most_skipped && (i == 0 || optimizer.state().empty()); ++i) dry_run.step(one);

  MeasuredStep result;
  const auto before = counter.allocated();
  const auto peak_of = [&](auto part) {
    counter.reset_peak();
    part();
    return counter.peak() - before;
  };
  dry_run.add_gradients(one);
  std::vector<torch::Tensor> gradients;
  for (std::size_t i = 0; i < optimizer.flat_parameters().layout()->slots.size(); ++i)
    gradients.push_back(optimizer.flat_parameters().parameter(i).grad());
  result.gradients = libtorch::storage_bytes(gradients);
  gradients.clear();
  result.keeps_gradients = !optimizer.flat_parameters().are_gradients_apart();
  result.activations = peak_of([&] { dry_run.add_gradients(one); });
  if (!result.keeps_gradients) result.activations -= result.gradients;
  dry_run.forget_step();
  result.step = peak_of([&] { dry_run.step(group); });
  return result;
}

}  // namespace

MemoryEstimate estimate_memory(const Context& context, TrainingDryRun& dry_run, const DataLoader& loader,
                               const MemoryEstimateOptions& options) {
  const auto& args = context.args;
  auto& optimizer = dry_run.optimizer();
  const auto device = context.model.parameters().front().device();
  const auto group = first_batches(dry_run, loader, args.gradient_accumulation_steps);
  const auto measured = measure_step(dry_run, group, device);

  auto parameters = context.model.parameters();
  std::vector<torch::Tensor> buffers;
  for (const auto& [name, buffer] : context.model.named_buffers()) buffers.push_back(buffer);
  if (const auto& loss = context.trainer.options().loss.module()) {
    for (const auto& parameter : loss->parameters()) parameters.push_back(parameter);
    for (const auto& buffer : loss->buffers()) buffers.push_back(buffer);
  }
  std::int64_t trained = 0;
  for (const auto& values : optimizer.flat_parameters().values())
    trained += static_cast<std::int64_t>(values.nbytes());

  const auto state = optimizer.state_bytes(), elsewhere = bytes_elsewhere(optimizer, device);
  ProcessMemory memory{.parameters = libtorch::storage_bytes(parameters),
                       .buffers = libtorch::storage_bytes(buffers),
                       .gradients = measured.gradients,
                       .moments = state - elsewhere,
                       .activations = measured.activations,
                       .batches = bytes_of_batches(group, args.gradient_accumulation_steps),
                       .copies = elsewhere};
  const auto weights = memory.parameters + memory.buffers;
  if (args.save_async && args.save_strategy != SaveStrategy::no)
    memory.copies += weights + (args.save_only_model ? 0 : state);
  if (args.auto_find_batch_size) memory.copies += weights;
  const auto kept = measured.keeps_gradients ? measured.gradients : 0;
  memory.start = weights + trained;  // flattening copies the weights; moments come later
  memory.peak = weights + memory.moments + memory.batches + (device.is_cpu() ? memory.copies : 0);

  MemoryEstimate result{.one_process = memory, .world_size = options.world_size};
  result.one_process.peak += measured.step + kept;
  if (options.world_size == 1) return result;

  // Several processes keep flat gradients between steps.
  memory.gradients = trained;
  const auto besides = measured.step - (measured.gradients - kept);
  memory.peak += memory.gradients + std::max(measured.activations, besides);
  result.replicated = memory;
  for (const auto stage : {ShardStage::optimizer_state, ShardStage::gradients, ShardStage::parameters}) {
    try {
      result.shards.emplace(stage, with_shards(memory, optimizer, context.model, stage, options.world_size,
                                               args.ddp_bucket_cap_mb << 20));
    } catch (const ArgumentError& refusal) {
      result.refused.emplace(stage, refusal.what());
    }
  }
  return result;
}

}  // namespace etude::inline v0::detail
