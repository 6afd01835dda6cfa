#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

struct SharedMemoryOptions {
  /// How long a message waits for a rank that sends nothing.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Messages are cut into pieces of at most this many bytes, which must be a multiple of 64 and at least 64
  /// per rank. Rank 0's value is used.
  std::int64_t slot_bytes = std::int64_t{256} << 10;
  /// The number of pieces that a rank may send before the others have read the first one. Rank 0's value is
  /// used.
  std::int64_t slots = 32;
  /// Called with the reason if the processes can't share memory.
  std::function<void(const std::string& why)> warn = {};
};

/// Connects processes on one machine, already connected by `met`, through shared memory, so that a small
/// message takes microseconds. Sums are bit-identical on all ranks, since each element is summed in the order
/// of the ranks; float16 and bfloat16 are summed as float32. Tensors that aren't on the CPU go through `met`.
///
/// Warns and returns `met` if the ranks aren't all on one machine or the system refuses the memory. A process
/// that ends leaves nothing behind, since the memory has no name. If a rank dies, the other ranks report it
/// within about a tenth of a second; if it hangs, at the timeout.
std::unique_ptr<Communicator> over_shared_memory(std::unique_ptr<Communicator> met,
                                                 const SharedMemoryOptions& options = {});

}  // namespace etude::inline v0
