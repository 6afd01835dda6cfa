#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "etude/io/launch.hpp"
#include "etude/parallel/gloo.hpp"

namespace toy {

/// A TCP port that nobody listens at.
inline std::int64_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

/// Runs `act` as each of `world_size` ranks, in threads of this process that are connected by Gloo. Returns
/// the message of each rank's exception, or "".
inline std::vector<std::string> as_ranks(std::int64_t world_size,
                                         const std::function<void(etude::Communicator&)>& act,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  const auto port = free_port();
  std::vector<std::string> faults(static_cast<std::size_t>(world_size));
  std::vector<std::jthread> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        const etude::Launch launch{.rank = rank,
                                   .world_size = world_size,
                                   .local_rank = rank,
                                   .local_world_size = world_size,
                                   .launcher = "torchrun",
                                   .master_addr = "127.0.0.1",
                                   .master_port = port};
        const auto communicator =
            etude::join_with_gloo(launch, {.timeout = timeout, .grace = std::chrono::milliseconds(200)});
        act(*communicator);
      } catch (const std::exception& error) {
        faults[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  ranks.clear();
  return faults;
}

}  // namespace toy
