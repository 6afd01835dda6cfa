#pragma once

#include <chrono>
#include <memory>

#include "etude/io/launch.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

struct GlooOptions {
  /// How long a process waits for the others, when it connects and in each message.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// How long the processes that noticed a failure wait for each other, to find out which ones are missing.
  std::chrono::milliseconds grace = std::chrono::milliseconds(1500);
};

/// Connects to the other processes over TCP with LibTorch's Gloo, for tensors on the CPU, and checks a sum
/// over all processes. The network interface is the one in GLOO_SOCKET_IFNAME, else loopback if all processes
/// are on one machine, else the one of the host's name. Throws CommunicationError that names the address
/// where the processes meet, and ArgumentError if this LibTorch has no Gloo.
std::unique_ptr<Communicator> join_with_gloo(const Launch& launch, const GlooOptions& options = {});

}  // namespace etude::inline v0
