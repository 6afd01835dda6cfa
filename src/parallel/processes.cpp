#include "etude/parallel/processes.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "etude/base/error.hpp"
#include "etude/io/launch.hpp"

namespace etude::inline v0 {

std::shared_ptr<Communicator> SingleProcess::join(const TrainingArguments&) {
  const auto launch = find_launch();
  if (launch.world_size > 1)
    throw ArgumentError(fmt::format(
        "the number of processes is {} (by {}, of which this is rank {}): must be 1, because each process "
        "would train for itself; to train together, write etude::Trainer<etude::DistributedDataParallel, "
        "...>",
        launch.world_size, launch.launcher, launch.rank));
  return std::make_shared<Communicator>(launch);
}

torch::Device detail::device_for(const Launch& launch, bool use_cpu) {
  if (use_cpu || !torch::cuda::is_available()) return torch::kCPU;
  if (launch.world_size == 1) return torch::kCUDA;
  const auto devices = static_cast<std::int64_t>(torch::cuda::device_count());
  const auto index = launch.local_rank;
  if (index >= devices)
    throw ArgumentError(
        fmt::format("LOCAL_RANK is {}: must be below {}, the number of GPUs; with torchrun, give "
                    "--nproc-per-node {}",
                    index, devices, devices));
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(index)};
}

std::string detail::advice_for_gpus(std::int64_t gpus) {
  return fmt::format(
      "this process trains on one of {} GPUs: to use all, write "
      "etude::Trainer<etude::DistributedDataParallel, "
      "...> and start torchrun --nproc-per-node {} --no-python {}; CUDA_VISIBLE_DEVICES=0 hides the others",
      gpus, gpus, program_invocation_name);
}

}  // namespace etude::inline v0
