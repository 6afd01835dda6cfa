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

/// The process's state in proc(5) and the time of its start, in ticks since the machine's; '\0' if it is
/// gone.
struct ProcessState {
  char state = '\0';
  std::uint64_t start = 0;
};

ProcessState process_state(std::int64_t pid);

/// A rank tells this to the others before they share memory, which rank 0 makes.
struct SharedMemoryOffer {
  std::int64_t pid = 0;
  std::uint64_t start = 0;
  std::int64_t descriptor = -1;
  std::int64_t slot_bytes = 0;
  std::int64_t slots = 0;
  std::uint64_t token = 0;
  std::array<char, 256> why_not = {};
};

/// Written by one rank each, and read by all.
struct alignas(128) RankProgress {
  std::atomic<std::uint64_t> published;  // pieces that lie in its slots, or did
  std::atomic<std::uint64_t> reduced;    // pieces whose own part it has summed
  std::atomic<std::uint64_t> consumed;   // pieces that it has read
  std::atomic<std::uint32_t> has_left;
};

/// The beginning of the memory. Behind it are a RankProgress for each rank, then the slots of rank 0, of rank
/// 1 and so on. The system gives it out filled with zeros.
struct alignas(128) SharedHeader {
  std::uint64_t token;
  alignas(64) std::atomic<std::uint32_t> events;  // changes whenever a sleeper may go on
  std::atomic<std::uint32_t> sleepers;
  alignas(64) std::atomic<std::uint32_t> is_over;  // 1 while a rank writes `why`, then 2
  std::array<char, 1020> why;
};

/// Stands at the beginning of a slot, and describes its content.
struct alignas(64) PieceHeader {
  std::uint32_t kind;
  std::int32_t dtype;
  std::int64_t bytes;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Maps the memory for as long as it lives.
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

/// The memory as one rank sees it, or the reason why it has none.
struct SharedMemoryPart {
  std::unique_ptr<SharedSegment> segment = {};
  std::string why_not = {};
};

/// Makes memory of `bytes` for all ranks, and describes it in `offer` for as long as `file` is open.
SharedMemoryPart make_shared_memory(Descriptor& file, SharedMemoryOffer& offer, std::size_t bytes);

/// Maps the memory that rank 0 offers.
SharedMemoryPart map_shared_memory(const SharedMemoryOffer& offer, std::size_t bytes);

}  // namespace etude::inline v0::detail

#endif
