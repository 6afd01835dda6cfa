#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

/// Whether this LibTorch has NCCL, and the compiler finds <nccl.h> and CUDA's headers.
bool has_nccl();

/// Connects the GPUs of processes that have met, by LibTorch's NCCL: it sends the tensors of `device`, and
/// `met` those of the CPU. A sum on the GPU is ordered behind the work of the current stream and before its
/// later work; no call waits for it. A rank that fails is noticed by the messages of `met`, and at the
/// timeout by NCCL's watchdog, which ends the process. Throws ArgumentError without NCCL or for a device that
/// isn't a GPU, CommunicationError if NCCL can't connect the processes or they don't add up.
std::unique_ptr<Communicator> over_nccl(std::unique_ptr<Communicator> met, torch::Device device,
                                        std::chrono::milliseconds timeout = std::chrono::minutes(30));

}  // namespace etude::inline v0
