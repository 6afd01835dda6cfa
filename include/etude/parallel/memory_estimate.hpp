#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "etude/model/model.hpp"
#include "etude/optim/optimizer.hpp"
#include "etude/parallel/shards.hpp"
#include "etude/reflect/struct.hpp"

namespace etude::inline v0 {

/// The memory that a training takes in one process, in bytes. All but `copies` is on the model's device.
struct ProcessMemory {
  std::int64_t parameters = 0;   ///< trained and frozen; with stage 3 its share, and the largest unit whole
  std::int64_t buffers = 0;      ///< of the model and the loss
  std::int64_t gradients = 0;    ///< from stage 2 on its share, and blocks on their way
  std::int64_t moments = 0;      ///< the state of the optimizer
  std::int64_t activations = 0;  ///< the most that a forward and backward pass needs besides
  std::int64_t batches = 0;      ///< the micro-batches of an update
  /// In the host's memory: weights and moments that `save_async` copies for the first process, weights that
  /// `auto_find_batch_size` keeps, and moments with `offload_optimizer`.
  std::int64_t copies = 0;
  /// The peak of a step. It is less than the sum of the parts if gradients come while activations go, and
  /// more if the optimizer needs more than a backward pass.
  std::int64_t peak = 0;
  /// The peak before the first step, while the optimizer lays out the parameters. Its state is made in that
  /// step.
  std::int64_t start = 0;
};

struct MemoryEstimateOptions {
  ETUDE_STRUCT(MemoryEstimateOptions,
               (std::int64_t, world_size, "the processes that train together" | at_least(1), 1));
};

/// The memory that a training takes, estimated before it.
struct MemoryEstimate {
  ProcessMemory one_process;
  std::int64_t world_size = 1;
  /// Each of `world_size` processes of DistributedDataParallel; unset for one process.
  std::optional<ProcessMemory> replicated = {};
  /// The same for ShardedDataParallel. A stage that the model or the optimizer doesn't permit is refused.
  std::map<ShardStage, ProcessMemory> shards = {};
  std::map<ShardStage, std::string> refused = {};  ///< why

  /// A table with a line for each way to train, in megabytes (of 10^6 bytes).
  std::string table() const;
};

namespace detail {

/// The memory of each process of ShardedDataParallel, given that of DistributedDataParallel. Throws
/// ArgumentError as `shard` and `unit_of_parameters` do.
ProcessMemory with_shards(const ProcessMemory& replicated, Optimizer& optimizer, const Model& model,
                          ShardStage stage, std::int64_t world_size, std::int64_t block_bytes);

}  // namespace detail
}  // namespace etude::inline v0
