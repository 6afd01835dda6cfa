#include "etude/parallel/rendezvous.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>

#include "etude/base/error.hpp"

#if ETUDE_HAS_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace etude::inline v0::detail {

c10::intrusive_ptr<c10d::Store> meet(const Launch& launch, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions to;
  to.port = static_cast<std::uint16_t>(launch.master_port);
  to.isServer = launch.rank == 0 && !launch.agent_serves_store;
  to.numWorkers = static_cast<std::size_t>(launch.world_size);
  to.waitWorkers = !launch.agent_serves_store;
  to.timeout = timeout;
  // Consecutive trainers in a process share a store: a new store could connect to another process's old one.
  struct Known {
    c10::intrusive_ptr<c10d::TCPStore> store;
    std::int64_t joins = 0;
  };
  static std::mutex mutex;
  static auto& stores = *new std::map<std::string, Known>();  // the server's thread outlives statics
  auto& known = [&]() -> Known& {
    const std::lock_guard lock(mutex);
    return stores[fmt::format("{}:{} rank {}", launch.master_addr, launch.master_port, launch.rank)];
  }();
  try {
    if (!known.store)
      known.store = within(timeout + grace_of_joining, [address = launch.master_addr, to] {
        return c10::make_intrusive<c10d::TCPStore>(address, to);
      });
    known.store->setTimeout(timeout);
    return c10::make_intrusive<c10d::PrefixStore>(
        fmt::format("etude/{}/{}", launch.restart_count, known.joins++), known.store);
  } catch (const std::exception& error) {
    throw CommunicationError(fmt::format(
        "rank {} of {}: the processes can't meet at {}:{} (MASTER_ADDR, MASTER_PORT): {}", launch.rank,
        launch.world_size, launch.master_addr, launch.master_port, first_line(error.what())));
  }
}

}  // namespace etude::inline v0::detail
#endif
