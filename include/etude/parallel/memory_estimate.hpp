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
  std::int64_t parameters = 0;   ///< trained and frozen; in stage 3, its share and the largest unit
  std::int64_t buffers = 0;      ///< the buffers of the model and the loss
  std::int64_t gradients = 0;    ///< from stage 2 on, this process's share and blocks in transfer
  std::int64_t moments = 0;      ///< the state of the optimizer
  std::int64_t activations = 0;  ///< the most that forward and backward need in addition
  std::int64_t batches = 0;      ///< the micro-batches of an update
  /// Memory of the host: weights and moments that `save_async` copies in rank 0, weights that
  /// `auto_find_batch_size` keeps, and moments with `offload_optimizer`.
  std::int64_t copies = 0;
  /// The peak of a step. It is less than the sum of the parts if activations are freed before all gradients
  /// exist, and more if the optimizer needs more memory than a backward pass.
  std::int64_t peak = 0;
  /// The peak before the first step, while the optimizer lays out the parameters. The optimizer's state is
  /// created only in that step.
  std::int64_t start = 0;
};

struct MemoryEstimateOptions {
  ETUDE_STRUCT(MemoryEstimateOptions,
               (std::int64_t, world_size, "the processes that train together" | at_least(1), 1));
};

/// An estimate of the memory that a training will take.
struct MemoryEstimate {
  ProcessMemory one_process;
  std::int64_t world_size = 1;
  /// For each of `world_size` processes of DistributedDataParallel; unset for a single process.
  std::optional<ProcessMemory> replicated = {};
  /// The same for ShardedDataParallel, by stage, unless the model or the optimizer doesn't support a stage.
  std::map<ShardStage, ProcessMemory> shards = {};
  std::map<ShardStage, std::string> refused = {};  ///< the reason, by unsupported stage

  /// A table with a line for each way to train, in megabytes (10^6 bytes).
  std::string table() const;
};

namespace detail {

/// The memory of each process of ShardedDataParallel, computed from that of DistributedDataParallel. Throws
/// ArgumentError as `shard` and `unit_of_parameters` do.
ProcessMemory with_shards(const ProcessMemory& replicated, Optimizer& optimizer, const Model& model,
                          ShardStage stage, std::int64_t world_size, std::int64_t block_bytes);

}  // namespace detail
}  // namespace etude::inline v0
