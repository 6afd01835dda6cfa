#pragma once

#include <chrono>
#include <memory>

#include "etude/io/launch.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

struct GlooOptions {
  /// How long a process waits for the others, at the start and in each message.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// How long the processes that noticed a failure wait for each other, to find out who is missing.
  std::chrono::milliseconds grace = std::chrono::milliseconds(1500);
};

/// Joins the other processes over TCP, with LibTorch's Gloo, on the CPU, and checks that they add up. The
/// network interface is that of GLOO_SOCKET_IFNAME, or loopback if all processes are on one machine, or else
/// the one of the host's name. Throws CommunicationError that names where the processes meet, ArgumentError
/// if this LibTorch has no Gloo.
std::unique_ptr<Communicator> join_with_gloo(const Launch& launch, const GlooOptions& options = {});

}  // namespace etude::inline v0
