#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "etude/io/launch.hpp"
#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

struct JoinOptions {
  /// How long a process waits for the others, when it connects and in each message.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Called with the reason if the processes of one machine can't share memory.
  std::function<void(const std::string& why)> warn = {};
};

/// Connects the processes of a training on the CPU with Gloo, and also through shared memory if all of them
/// are on one machine and none has the environment variable ETUDE_SHARED_MEMORY set to 0. A single process
/// opens nothing. Throws as join_with_gloo() does.
std::unique_ptr<Communicator> join_processes(const Launch& launch, const JoinOptions& options = {});

}  // namespace etude::inline v0
