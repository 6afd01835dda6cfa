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

/// The parts of a training that are divided among the processes. The numbers are the stages of ZeRO
/// (Rajbhandari et al. 2020).
enum class ShardStage {
  optimizer_state = 1,
  gradients = 2,   ///< gradients and the optimizer's state
  parameters = 3,  ///< parameters, gradients and the optimizer's state
};

/// Divides an optimizer's state, and gradients, evenly among all processes. Each process updates its share of
/// the parameters, which must be equal in all processes beforehand. A GradientReducer made afterwards sums
/// the gradients. From then on, all processes must call the functions of the optimizer in the same order;
/// norms and clipping use the gradients of all shares. The communicator must outlive the optimizer. With a
/// single process, nothing changes.
///
/// Gradients and values are sent in blocks of about `block_bytes`. ShardStage::parameters also divides the
/// parameters in `unit_of`, which a ShardedUnits made afterwards gathers for each use. Shares cut through
/// parameters, so this throws ArgumentError for an optimizer that isn't a FlatOptimizer.
void shard(Optimizer& optimizer, Communicator& communicator, ShardStage stage,
           std::int64_t block_bytes = std::int64_t{25} << 20,
           const std::unordered_map<std::string, std::size_t>& unit_of = {});

namespace detail {
/// Casts to an optimizer whose parameters shards can cut through. Throws ArgumentError for any other.
FlatOptimizer& divisible(Optimizer& optimizer);
}  // namespace detail

/// The whole state of an optimizer, like `Optimizer::state` without shards, so that any number of processes
/// can load it. Only rank 0 gets it, unless `everywhere` is true; the result is empty in other ranks. If
/// there are shards, all processes must call it.
NamedTensors gather_state(Optimizer& optimizer, Communicator& communicator, bool everywhere = false);

}  // namespace etude::inline v0
