#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// True if this LibTorch has NCCL and Etude was compiled with <nccl.h> and CUDA's headers.
bool has_nccl();

/// Connects the GPUs of processes that are already connected by `met`, with LibTorch's NCCL. NCCL sends
/// tensors on `device`, and `met` tensors on the CPU. A sum on the GPU runs after earlier and before later
/// work on the current stream; no call waits for it. A failed rank is noticed by messages of `met`, or at the
/// timeout by NCCL's watchdog, which ends the process. Throws ArgumentError without NCCL or for a device that
/// isn't a GPU, and CommunicationError if NCCL can't connect the processes or sums wrongly.
std::unique_ptr<Communicator> over_nccl(std::unique_ptr<Communicator> met, torch::Device device,
                                        std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace etude::inline v0
