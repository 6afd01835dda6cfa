#pragma once

#ifdef __linux__
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "etude/io/descriptor.hpp"

namespace etude::inline v0::detail {

/// A process's state as in proc(5), '\0' if it is gone, and its start time in ticks since the machine's boot.
struct ProcessState {
  char state = '\0';
  std::uint64_t start = 0;
};

ProcessState process_state(std::int64_t pid);

/// Sent by each rank to the others before they share memory, which rank 0 creates.
struct SharedMemoryOffer {
  std::int64_t pid = 0;
  std::uint64_t start = 0;  // set by the receiver
  std::int64_t descriptor = -1;
  std::int64_t slot_bytes = 0;
  std::int64_t slots = 0;
  std::uint64_t token = 0;
  std::array<char, 256> why_not = {};
};

/// The progress of one rank, which writes it and all read it.
struct alignas(128) RankProgress {
  std::atomic<std::uint64_t> published;  // number of pieces that it has put into its slots
  std::atomic<std::uint64_t> reduced;    // number of pieces of which it has summed its part
  std::atomic<std::uint64_t> consumed;   // number of pieces that it has read
  std::atomic<std::uint32_t> has_left;
};

/// The beginning of the memory. It is followed by a RankProgress for each rank, then by the slots of rank 0,
/// of rank 1 and so on. The system provides it filled with zeros.
struct alignas(128) SharedHeader {
  std::uint64_t token;
  alignas(64) std::atomic<std::uint32_t> events;  // changes whenever a sleeper may continue
  std::atomic<std::uint32_t> sleepers;
  /// The values of `is_over`: 0; while a rank writes `why`; then for a message that failed, or a rank that
  /// gave up.
  static constexpr std::uint32_t writing = 1, failed = 2, given_up = 3;
  alignas(64) std::atomic<std::uint32_t> is_over;
  std::array<char, 1020> why;
};

/// Describes the content of a slot, and is stored at its beginning.
struct alignas(64) PieceHeader {
  std::uint32_t kind;
  std::int32_t dtype;
  std::int64_t bytes;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Maps the memory while it lives.
class SharedSegment {
 public:
  SharedSegment(int descriptor, std::size_t bytes)
      : bytes_(bytes), begin_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)) {}
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment() {
    if (*this) ::munmap(begin_, bytes_);
  }

  explicit operator bool() const { return begin_ != MAP_FAILED; }
  SharedHeader& header() const { return *static_cast<SharedHeader*>(begin_); }
  RankProgress& progress(std::int64_t rank) const {
    return reinterpret_cast<RankProgress*>(static_cast<std::byte*>(begin_) + sizeof(SharedHeader))[rank];
  }
  std::byte* slots(std::int64_t world) const;

  static std::size_t size(std::int64_t world, std::int64_t slots, std::int64_t slot_bytes);

 private:
  std::size_t bytes_;
  void* begin_;
};

/// A rank's mapping of the memory, or the reason why it has none.
struct SharedMemoryPart {
  std::unique_ptr<SharedSegment> segment = {};
  std::string why_not = {};
};

/// Creates `bytes` of memory for all ranks, and describes it in `offer`. Other ranks can map it while `file`
/// is open.
SharedMemoryPart make_shared_memory(Descriptor& file, SharedMemoryOffer& offer, std::size_t bytes);

/// Maps the memory that rank 0 offers.
SharedMemoryPart map_shared_memory(const SharedMemoryOffer& offer, std::size_t bytes);

}  // namespace etude::inline v0::detail

#endif
