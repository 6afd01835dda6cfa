#include "etude/parallel/distributed_data_parallel.hpp"

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "etude/base/error.hpp"
#include "etude/base/message.hpp"
#include "etude/io/launch.hpp"
#include "etude/parallel/join_processes.hpp"
#include "etude/parallel/nccl.hpp"
#include "etude/parallel/processes.hpp"

namespace etude::inline v0 {

std::shared_ptr<Communicator> DistributedDataParallel::join(const TrainingArguments& args) {
  const auto launch = find_launch();
  if (launch.world_size == 1) return std::make_shared<Communicator>(launch);
  if (args.ddp_backend == DdpBackend::mpi)
    throw ArgumentError(
        "ddp_backend is mpi: must be gloo or nccl, because LibTorch's packages have no MPI: mpirun starts "
        "processes that Gloo connects");
  const bool over_gpus = args.ddp_backend == DdpBackend::nccl;
  if (over_gpus && !has_nccl())
    throw ArgumentError(
        "ddp_backend is nccl: must be gloo, because this LibTorch has no NCCL or the compiler finds no "
        "<nccl.h>; Gloo takes the gradients of GPUs, too");
  const auto device = detail::device_for(launch, args.use_cpu);
  if (over_gpus && !device.is_cuda())
    throw ArgumentError("ddp_backend is nccl: must be gloo, because the training is on the CPU");
  const std::chrono::seconds timeout(args.ddp_timeout);
  auto processes = join_processes(launch, {.timeout = timeout, .warn = [&](const std::string& why) {
                                             if (launch.rank == 0) message(args, LogLevel::info, "{}", why);
                                           }});
  if (over_gpus) return over_nccl(std::move(processes), device, timeout);
  return processes;
}

void detail::main_process_first(const std::function<void()>& act, const TrainingArguments& args, bool local) {
  const auto processes = DistributedDataParallel::join(args);
  const auto& launch = processes->launch();
  const bool is_first = (local ? launch.local_rank : launch.rank) == 0;
  if (!is_first) processes->barrier();
  try {
    act();
  } catch (...) {
    if (is_first) processes->give_up(message_of(std::current_exception()));
    throw;
  }
  if (is_first) processes->barrier();
}

}  // namespace etude::inline v0
