#pragma once

#ifndef ETUDE_PARALLEL
#error "etude/parallel/distributed_data_parallel.hpp needs a library: link etude::parallel"
#endif

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "etude/parallel/communicator.hpp"
#include "etude/parallel/shards.hpp"
#include "etude/training_arguments.hpp"

namespace etude::inline v0 {

/// Trains one model in all processes that torchrun, mpirun or srun has started. Each process takes its part
/// of every batch, and the gradients are summed, so the result is the same as with one process whose batches
/// are as large as all parts together. Without a launcher, the program is a single process that opens no
/// connection.
struct DistributedDataParallel {
  using etude_policy = void;
  /// Throws ArgumentError for a `ddp_backend` that this LibTorch or the device doesn't have,
  /// CommunicationError if the processes can't meet within `ddp_timeout`.
  static std::shared_ptr<Communicator> join(const TrainingArguments& args);
};

/// The same, but each process keeps only its share of the optimizer's state (Stage 1), of the gradients as
/// well (Stage 2), or also of the parameters of `units(model)` (Stage 3): the stages of ZeRO (Rajbhandari et
/// al. 2020). Checkpoints are the same. Stage 3 is experimental: parameters of units are gathered before each
/// use and freed after it, and read as NaN in between.
template <int Stage>
struct ShardedDataParallel {
  static_assert(Stage >= 1 && Stage <= 3,
                "etude: ShardedDataParallel<1> divides the optimizer's state among the processes, "
                "ShardedDataParallel<2> the gradients too, ShardedDataParallel<3> the parameters too");
  using etude_policy = void;
  static constexpr ShardStage stage = static_cast<ShardStage>(Stage);
  static std::shared_ptr<Communicator> join(const TrainingArguments& args) {
    return DistributedDataParallel::join(args);
  }
};

namespace detail {
void main_process_first(const std::function<void()>& act, const TrainingArguments& args, bool local);
}  // namespace detail

/// Calls `act` in the first process of each machine and, once it has returned there, in the other processes,
/// which find the files that the first one has downloaded or converted. Follows main_process_first of Hugging
/// Face's TrainingArguments, whose default is also `local`; if that is false, only rank 0 goes first. If
/// `act` throws in a first process, the others throw CommunicationError. All processes must call this. With a
/// single process, it just calls `act`.
template <std::invocable Act>
std::invoke_result_t<Act> main_process_first(Act act, const TrainingArguments& args = {}, bool local = true) {
  if constexpr (std::is_void_v<std::invoke_result_t<Act>>) {
    detail::main_process_first(act, args, local);
  } else {
    std::optional<std::invoke_result_t<Act>> result;
    detail::main_process_first([&] { result.emplace(act()); }, args, local);
    return *std::move(result);
  }
}

}  // namespace etude::inline v0
