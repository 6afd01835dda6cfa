#include "etude/parallel/shards.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <cstdint>
#include <string>

#include "etude/base/error.hpp"
#include "etude/base/lower_case.hpp"
#include "etude/optim/adamw_8bit.hpp"
#include "etude/optim/flat_optimizer.hpp"
#include "etude/optim/lbfgs.hpp"
#include "etude/optim/sparse_adam.hpp"
#include "etude/optim/torch_optimizer.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

namespace detail {

FlatOptimizer& divisible(Optimizer& optimizer) {
  const bool needs_rows = dynamic_cast<SparseAdam*>(&optimizer) != nullptr;
  if (auto* flat = dynamic_cast<FlatOptimizer*>(&optimizer); flat && !needs_rows) return *flat;
  std::string name = optimizer.type();
  if (dynamic_cast<TorchOptimizer*>(&optimizer) && !dynamic_cast<LBFGS*>(&optimizer))
    name = fmt::format("LibTorch's {}", name);
  else if (needs_rows)
    name = to_string(OptimizerNames::sparse_adam);
  else if (dynamic_cast<AdamW8bit*>(&optimizer))
    name = to_string(OptimizerNames::adamw_8bit);
  else
    name = lower_case(name);
  throw ArgumentError(fmt::format(
      "optim is {}: must be one of adamw_torch, adamw_torch_fused, adam, sgd, adagrad, rmsprop, lion "
      "with ShardedDataParallel, which cuts through parameters",
      name));
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
