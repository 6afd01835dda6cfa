#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "etude/optim/flat_optimizer.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/optim/parameter_groups.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// The parts of a training of which a process keeps only its share. The numbers are the stages of ZeRO
/// (Rajbhandari et al. 2020).
enum class ShardStage {
  optimizer_state = 1,
  gradients = 2,   ///< and the optimizer's state
  parameters = 3,  ///< and both
};

/// Divides an optimizer's state, and gradients, evenly among all processes; each updates its share of the
/// parameters, in which all must agree before. A GradientReducer made afterwards sums the gradients. All
/// processes then call the functions of the optimizer in the same order; norms and clipping are those of all
/// gradients. The communicator must outlive the optimizer. Alone, nothing changes.
///
/// Gradients and values are sent in blocks of about `block_bytes`. ShardStage::parameters divides the
/// parameters of `unit_of`, which a ShardedUnits made afterwards brings where they are used. Shares cut
/// through parameters: throws ArgumentError for an optimizer that isn't a FlatOptimizer.
void shard(Optimizer& optimizer, Communicator& communicator, ShardStage stage,
           std::int64_t block_bytes = std::int64_t{25} << 20,
           const std::unordered_map<std::string, std::size_t>& unit_of = {});

namespace detail {
/// Throws ArgumentError if shards can't cut through the optimizer's parameters.
FlatOptimizer& divisible(Optimizer& optimizer);
}  // namespace detail

/// The whole state of an optimizer in rank 0, as `Optimizer::state` of an optimizer without shards, so that
/// any number of processes can load it; nothing in other ranks, unless it is wanted `everywhere`. All
/// processes must call it if there are shards.
NamedTensors gather_state(Optimizer& optimizer, Communicator& communicator, bool everywhere = false);

}  // namespace etude::inline v0
