#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "etude/io/launch.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

struct JoinOptions {
  /// How long a process waits for the others, at the start and in each message.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Receives the reason why processes of one machine don't share memory.
  std::function<void(const std::string& why)> warn = {};
};

/// Connects the processes of a training on the CPU: with Gloo, and through shared memory if all of them are
/// on one machine, unless the environment variable ETUDE_SHARED_MEMORY is 0 in any of them. One process alone
/// opens nothing. Throws what join_with_gloo() throws.
std::unique_ptr<Communicator> join_processes(const Launch& launch, const JoinOptions& options = {});

}  // namespace etude::inline v0
