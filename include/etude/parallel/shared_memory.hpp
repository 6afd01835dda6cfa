#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "etude/parallel/communicator.hpp"

namespace etude::inline v0 {

struct SharedMemoryOptions {
  /// How long a message waits while a rank that it needs sends nothing.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Messages are cut into pieces of at most this many bytes, a multiple of 64 that is at least 64 for each
  /// rank. Those of rank 0 count.
  std::int64_t slot_bytes = std::int64_t{256} << 10;
  /// The number of pieces that a rank may send before the others have read the first. Those of rank 0 count.
  std::int64_t slots = 32;
  /// Receives the reason why the processes don't share memory.
  std::function<void(const std::string& why)> warn = {};
};

/// Connects processes of one machine, which have met, through memory that they share: a small message takes
/// microseconds. Sums are the same bits on all ranks, since each element is summed in the order of the ranks;
/// float16 and bfloat16 are summed as float32. Tensors that aren't on the CPU go through `met`.
///
/// Returns `met`, after a warning, if the ranks aren't all on one machine or the system refuses the memory. A
/// process that ends leaves nothing behind, since the memory has no name. A rank that dies is named by the
/// others within about a tenth of a second, one that hangs at the timeout.
std::unique_ptr<Communicator> over_shared_memory(std::unique_ptr<Communicator> met,
                                                 const SharedMemoryOptions& options = {});

}  // namespace etude::inline v0
