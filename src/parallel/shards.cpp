#include "etude/parallel/shards.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <string>

#include "etude/base/error.hpp"
#include "etude/optim/flat_optimizer.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

namespace detail {

FlatOptimizer& divisible(Optimizer& optimizer) {
  if (optimizer.traits().is_elementwise)
    if (auto* flat = dynamic_cast<FlatOptimizer*>(&optimizer)) return *flat;
  throw ArgumentError(fmt::format(
      "the optimizer is {}: optim must be one of {} with ShardedDataParallel, which cuts through parameters",
      optimizer.type(), optimizers_with(&OptimizerTraits::is_elementwise)));
}

}  // namespace detail

void shard(Optimizer& optimizer, Communicator& communicator, ShardStage stage, std::int64_t block_bytes,
           const std::unordered_map<std::string, std::size_t>& unit_of) {
  FlatOptimizer& flat = detail::divisible(optimizer);
  if (communicator.world_size() == 1) return;
  flat.keep_shard({.index = communicator.rank(),
                   .count = communicator.world_size(),
                   .block_bytes = block_bytes,
                   .gradients = stage != ShardStage::optimizer_state,
                   .unit_of = unit_of,
                   .gather = [&](const torch::Tensor& block) { communicator.gather_parts(block); },
                   .sum = [&](const torch::Tensor& tensor) { communicator.sum(tensor); }});
}

NamedTensors gather_state(Optimizer& optimizer, Communicator& communicator, bool everywhere) {
  const bool is_wanted = everywhere || communicator.rank() == 0;
  if (optimizer.flat_parameters().layout()->is_sharded())
    return detail::divisible(optimizer).gather_state(is_wanted);
  return is_wanted ? optimizer.state() : NamedTensors();
}

}  // namespace etude::inline v0
