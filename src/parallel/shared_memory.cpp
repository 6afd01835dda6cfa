#include "etude/parallel/shared_memory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/io/descriptor.hpp"
#include "etude/parallel/shared_segment.hpp"
#include "etude/parallel/sum_of_ranks.hpp"

namespace etude::inline v0 {

#ifdef __linux__
namespace detail {

namespace {

/// Every message is cut into pieces, which all ranks number alike. A rank copies a piece into one of its
/// slots, once all ranks have read the slot's previous piece, and counts it as published. There is no thread:
/// each call advances all pending messages as far as the other ranks' counters allow.
///
/// The work of a long sum is shared: each rank sums its part of a piece from all slots and puts the result
/// into its slot, where the others read it. Every rank computes a short sum by itself, which saves a round.
class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(std::unique_ptr<Communicator> met, std::unique_ptr<SharedSegment> segment,
                           std::vector<SharedMemoryOffer> ranks, std::chrono::milliseconds timeout)
      : Communicator(met->launch()),
        met_(std::move(met)),
        segment_(std::move(segment)),
        header_(segment_->header()),
        ranks_(std::move(ranks)),
        timeout_(timeout),
        slots_(static_cast<std::uint64_t>(ranks_[0].slots)),
        slot_bytes_(ranks_[0].slot_bytes),
        sources_(ranks_.size()),
        spins_(world_size() <= static_cast<std::int64_t>(std::thread::hardware_concurrency())) {}

  ~SharedMemoryCommunicator() override {
    own().has_left.store(1);
    notify();
  }

  PendingMessage begin_sum(const torch::Tensor& tensor) override {
    const auto sum = sum_of_ranks_for(tensor.scalar_type());
    if (!sum || !fits(tensor)) return met_->begin_sum(tensor);
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    return begin({.kind = bytes <= short_bytes ? Kind::short_sum : Kind::sum,
                  .tensor = tensor,
                  .bytes = bytes,
                  .step = slot_bytes_,
                  .sum = sum});
  }

  PendingMessage begin_sum_parts(const torch::Tensor& tensor) override {
    const auto sum = sum_of_ranks_for(tensor.scalar_type());
    if (!sum || !fits(tensor)) return met_->begin_sum_parts(tensor);
    return begin({.kind = Kind::sum_of_parts,
                  .tensor = tensor,
                  .bytes = part_of(tensor) * item(tensor),
                  .step = slot_bytes_ / world_size() / 64 * 64,
                  .sum = sum});
  }

  void gather_parts(const torch::Tensor& tensor) override {
    if (!fits(tensor)) return met_->gather_parts(tensor);
    begin({.kind = Kind::gather,
           .tensor = tensor,
           .bytes = part_of(tensor) * item(tensor),
           .step = slot_bytes_})();
  }

  void broadcast(const torch::Tensor& tensor, std::int64_t from) override {
    if (!fits(tensor)) return met_->broadcast(tensor, from);
    begin({.kind = Kind::broadcast,
           .tensor = tensor,
           .bytes = static_cast<std::int64_t>(tensor.nbytes()),
           .step = slot_bytes_,
           .from = from})();
  }

  void barrier() override { begin({.kind = Kind::barrier})(); }

  void give_up(const std::string& reason) override {
    end_for_all(fmt::format("rank {} ended the training: {}", rank(), reason), SharedHeader::given_up);
    met_->give_up(reason);
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  enum class Kind : std::uint32_t { short_sum, sum, sum_of_parts, gather, broadcast, barrier };

  struct Message {
    Kind kind = Kind::barrier;
    torch::Tensor tensor = {};
    std::int64_t bytes = 0;  // size of the tensor, or of each part
    std::int64_t step = 1;   // size of a piece
    std::int64_t from = 0;   // the rank that broadcasts
    SumOfRanks sum = nullptr;
    std::uint64_t first = 0;  // the number of its first piece
    std::uint64_t pieces = 1;
    std::byte* data = nullptr;
  };

  /// The next piece that a stage works on, and its message.
  struct Cursor {
    std::uint64_t message = 0;
    std::uint64_t piece = 0;
  };

  static constexpr std::int64_t short_bytes = 4096;
  static constexpr auto life_check = std::chrono::milliseconds(50);

  static std::int64_t item(const torch::Tensor& tensor) {
    return static_cast<std::int64_t>(tensor.element_size());
  }
  static bool fits(const torch::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); }

  RankProgress& own() const { return segment_->progress(rank()); }

  PieceHeader& slot(std::int64_t rank, std::uint64_t piece) const {
    const auto index = static_cast<std::uint64_t>(rank) * slots_ + piece % slots_;
    const auto bytes = sizeof(PieceHeader) + static_cast<std::size_t>(slot_bytes_);
    return *reinterpret_cast<PieceHeader*>(segment_->slots(world_size()) + index * bytes);
  }
  std::byte* slot_data(std::int64_t rank, std::uint64_t piece) const {
    return reinterpret_cast<std::byte*>(&slot(rank, piece) + 1);
  }

  PendingMessage begin(Message message) {
    if (message.kind != Kind::barrier && message.bytes == 0) return [] {};
    const std::lock_guard lock(mutex_);
    // Messages sent before a rank gave up are delivered; a message that failed on other ranks fails here too.
    if (has_seen_end_ || header_.is_over.load() == SharedHeader::failed) throw_if_over();
    if (message.tensor.defined()) message.data = static_cast<std::byte*>(message.tensor.data_ptr());
    message.first = next_piece_;
    message.pieces =
        message.bytes == 0 ? 1 : static_cast<std::uint64_t>((message.bytes - 1) / message.step + 1);
    next_piece_ += message.pieces;
    messages_.push_back(std::move(message));
    const auto number = finished_.message + messages_.size() - 1;
    advance();
    return [this, number] { wait(number); };
  }

  Message& message_at(const Cursor& cursor) {
    return messages_[static_cast<std::size_t>(cursor.message - finished_.message)];
  }
  bool is_at_end(const Cursor& cursor) const {
    return cursor.message == finished_.message + messages_.size();
  }
  static void step(Cursor& cursor, const Message& message) {
    if (++cursor.piece == message.first + message.pieces) ++cursor.message;
  }

  /// The offset of a piece in the tensor, or in each part, and its size in bytes.
  static std::pair<std::int64_t, std::int64_t> extent(const Message& message, std::uint64_t piece) {
    const auto begin = static_cast<std::int64_t>(piece - message.first) * message.step;
    return {begin, std::min(message.step, message.bytes - begin)};
  }

  /// The offset and size of the part of a long sum's piece that `rank` sums: whole cache lines.
  std::pair<std::int64_t, std::int64_t> share(std::int64_t bytes, std::int64_t rank) const {
    const auto each = ((bytes - 1) / world_size() / 64 + 1) * 64;
    const auto begin = std::min(bytes, rank * each);
    return {begin, std::min(bytes - begin, each)};
  }

  static void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  /// True if a counter has reached `count` on all ranks. `known` caches their minimum.
  template <class Counter>
  bool all_have(Counter RankProgress::*counter, std::uint64_t count, std::uint64_t& known) const {
    if (known >= count) return true;
    known = std::numeric_limits<std::uint64_t>::max();
    for (std::int64_t i = 0; i < world_size(); ++i)
      known = std::min(known, (segment_->progress(i).*counter).load());
    return known >= count;
  }

  /// Advances all messages as far as possible: publishes, sums and completes pieces. Returns true if it did
  /// anything.
  bool advance() {
    const auto before = published_.piece + reduced_.piece + finished_.piece;
    while (!is_at_end(published_)) {
      const auto piece = published_.piece;
      if (piece >= slots_ && !all_have(&RankProgress::consumed, piece - slots_ + 1, consumed_by_all_)) break;
      const auto& message = message_at(published_);
      put(message, piece);
      step(published_, message);
      own().published.store(piece + 1);
      notify();
    }
    while (reduced_.piece < published_.piece) {
      const auto piece = reduced_.piece;
      const auto& message = message_at(reduced_);
      if (message.kind == Kind::sum) {
        if (!all_have(&RankProgress::published, piece + 1, published_by_all_)) break;
        check_same(message, piece);
        reduce(message, piece);
      }
      step(reduced_, message);
      if (message.kind == Kind::sum) {
        own().reduced.store(piece + 1);
        notify();
      }
    }
    while (finished_.piece < reduced_.piece && has_arrived(messages_.front(), finished_.piece)) {
      const auto piece = finished_.piece;
      auto& message = messages_.front();
      if (message.kind != Kind::sum) check_same(message, piece);
      take(message, piece);
      ++finished_.piece;
      own().consumed.store(piece + 1);
      notify();
      if (finished_.piece == message.first + message.pieces) {
        ++finished_.message;
        messages_.pop_front();
      }
    }
    return published_.piece + reduced_.piece + finished_.piece != before;
  }

  bool has_arrived(const Message& message, std::uint64_t piece) {
    if (message.kind == Kind::broadcast) return segment_->progress(message.from).published.load() > piece;
    return message.kind == Kind::sum ? all_have(&RankProgress::reduced, piece + 1, reduced_by_all_)
                                     : all_have(&RankProgress::published, piece + 1, published_by_all_);
  }

  /// Copies the bytes of a piece that other ranks need into the slot.
  void put(const Message& message, std::uint64_t piece) {
    const auto extent = SharedMemoryCommunicator::extent(message, piece);
    auto& header = slot(rank(), piece);
    header.kind = static_cast<std::uint32_t>(message.kind);
    header.dtype = message.tensor.defined() ? static_cast<std::int32_t>(message.tensor.scalar_type()) : 0;
    header.bytes = extent.second;
    auto* const to = slot_data(rank(), piece);
    const auto* const data = message.data;
    switch (message.kind) {
      case Kind::short_sum:
        copy(to, data + extent.first, extent.second);
        break;
      case Kind::sum: {
        const auto own = share(extent.second, rank());
        const auto end = own.first + own.second;
        copy(to, data + extent.first, own.first);
        copy(to + end, data + extent.first + end, extent.second - end);
        break;
      }
      case Kind::sum_of_parts:
        for (std::int64_t i = 0; i < world_size(); ++i)
          if (i != rank())
            copy(to + i * message.step, data + i * message.bytes + extent.first, extent.second);
        break;
      case Kind::gather:
        copy(to, data + rank() * message.bytes + extent.first, extent.second);
        break;
      case Kind::broadcast:
        if (message.from == rank()) copy(to, data + extent.first, extent.second);
        break;
      case Kind::barrier:
        break;
    }
  }

  /// Sums this rank's part of a piece of a long sum, in the order of the ranks.
  void reduce(const Message& message, std::uint64_t piece) {
    const auto extent = SharedMemoryCommunicator::extent(message, piece);
    const auto part = share(extent.second, rank());
    auto* const data = message.data + extent.first + part.first;
    sum(message, piece, part.first, data, slot_data(rank(), piece) + part.first, part.second);
  }

  void sum(const Message& message, std::uint64_t piece, std::int64_t in_slot, std::byte* data,
           std::byte* also_to, std::int64_t bytes) {
    for (std::int64_t i = 0; i < world_size(); ++i)
      sources_[static_cast<std::size_t>(i)] = i == rank() ? data : slot_data(i, piece) + in_slot;
    message.sum(data, also_to, sources_, bytes / item(message.tensor));
  }

  /// Completes a piece that has arrived.
  void take(const Message& message, std::uint64_t piece) {
    const auto extent = SharedMemoryCommunicator::extent(message, piece);
    auto* const data = message.data;
    switch (message.kind) {
      case Kind::short_sum:
        sum(message, piece, 0, data + extent.first, nullptr, extent.second);
        break;
      case Kind::sum:
        for (std::int64_t i = 0; i < world_size(); ++i) {
          const auto part = share(extent.second, i);
          if (i != rank())
            copy(data + extent.first + part.first, slot_data(i, piece) + part.first, part.second);
        }
        break;
      case Kind::sum_of_parts:
        sum(message, piece, rank() * message.step, data + rank() * message.bytes + extent.first, nullptr,
            extent.second);
        break;
      case Kind::gather:
        for (std::int64_t i = 0; i < world_size(); ++i)
          if (i != rank()) copy(data + i * message.bytes + extent.first, slot_data(i, piece), extent.second);
        break;
      case Kind::broadcast:
        if (message.from != rank()) copy(data + extent.first, slot_data(message.from, piece), extent.second);
        break;
      case Kind::barrier:
        break;
    }
  }

  /// Ends the training if ranks send different messages: their sums would be meaningless.
  void check_same(const Message& message, std::uint64_t piece) {
    const auto& mine = slot(rank(), piece);
    for (std::int64_t i = 0; i < world_size(); ++i) {
      const auto& theirs = slot(i, piece);
      if (message.kind == Kind::broadcast && i != message.from) continue;
      if (theirs.kind == mine.kind && theirs.dtype == mine.dtype && theirs.bytes == mine.bytes) continue;
      end_for_all(fmt::format("rank {} sends {}, but rank {} {}: all ranks must send the same messages", i,
                              described(theirs), rank(), described(mine)));
      throw_if_over();
    }
  }

  static std::string described(const PieceHeader& piece) {
    static constexpr std::array names{"sum", "sum", "sum of parts", "gather", "broadcast", "barrier"};
    const auto kind = std::min<std::size_t>(piece.kind, names.size() - 1);
    return fmt::format("{} bytes of {} in a {}", piece.bytes,
                       c10::toString(static_cast<c10::ScalarType>(piece.dtype)), names[kind]);
  }

  void wait(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    const Waiting waiting(*this);
    for (int idle = 0; finished_.message <= number; ++idle) {
      // Read before advance(), which completes what was sent before the end.
      const bool is_over = header_.is_over.load() != 0;
      if (advance()) idle = 0;
      if (finished_.message > number) return;
      if (is_over) throw_if_over();
      if (idle == 0) waiting_since_ = {};
      pause(idle);
    }
  }

  /// Waits a moment: at first spinning, then yielding the core, then asleep until another rank makes
  /// progress.
  void pause(int idle) {
    if (spins_ && idle < 1000) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
    } else if (idle < 1200) {
      ::sched_yield();
    } else {
      sleep();
    }
  }

  void sleep() {
    const auto now = std::chrono::steady_clock::now();
    if (waiting_since_ == Time{}) waiting_since_ = last_check_ = now;
    header_.sleepers.fetch_add(1);
    const auto events = header_.events.load();
    if (advance()) {
      waiting_since_ = {};
    } else if (header_.is_over.load() == 0 && !blame_leavers(now)) {
      constexpr std::timespec limit{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(life_check).count()};
      ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&header_.events), FUTEX_WAIT, events, &limit,
                nullptr, 0);
    }
    header_.sleepers.fetch_sub(1);
  }

  void notify() {
    if (header_.sleepers.load() > 0) wake();
  }
  void wake() {
    header_.events.fetch_add(1);
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&header_.events), FUTEX_WAKE,
              std::numeric_limits<int>::max(), nullptr, nullptr, 0);
  }

  /// The ranks that the oldest message waits for.
  std::vector<std::int64_t> late() const {
    std::vector<std::int64_t> result;
    if (messages_.empty()) return result;
    const auto& message = messages_.front();
    const auto piece = finished_.piece;
    for (const bool reduced : {false, true}) {
      if (reduced && (message.kind != Kind::sum || !result.empty())) break;
      for (std::int64_t i = 0; i < world_size(); ++i) {
        const auto& progress = segment_->progress(i);
        const bool is_late = (reduced ? progress.reduced : progress.published).load() <= piece;
        if (is_late && (message.kind != Kind::broadcast || i == message.from)) result.push_back(i);
      }
    }
    return result;
  }

  /// Ends the training for all ranks if a late one has left or died, or at the timeout.
  bool blame_leavers(Time now) {
    const bool checks_life = now - last_check_ >= life_check;
    if (checks_life) last_check_ = now;
    const bool is_timeout = now - waiting_since_ >= timeout_;
    std::string why;
    for (const auto rank : late()) {
      const auto& offer = ranks_[static_cast<std::size_t>(rank)];
      if (segment_->progress(rank).has_left.load() != 0) {
        why = fmt::format("rank {} has left the training", rank);
      } else if (checks_life && offer.start != 0) {
        const auto process = process_state(offer.pid);
        if (process.start != offer.start || process.state == 'Z' || process.state == 'X')
          why = fmt::format("rank {} is gone: its process {} has ended", rank, offer.pid);
      }
      if (!why.empty()) break;
    }
    if (why.empty() && !is_timeout) return false;
    if (advance()) return true;  // it sent something before it left
    if (why.empty()) why = describe_late();
    end_for_all(why);
    return true;
  }

  std::string describe_late() const {
    const auto ranks = late();
    std::vector<std::int64_t> stopped;
    for (const auto rank : ranks)
      if (process_state(ranks_[static_cast<std::size_t>(rank)].pid).state == 'T') stopped.push_back(rank);
    const auto list = [](const std::vector<std::int64_t>& of) {
      return fmt::format("rank{} {}", of.size() > 1 ? "s" : "", fmt::join(of, ", "));
    };
    auto why = fmt::format("{} sent nothing for {} s (the timeout)", list(ranks),
                           std::chrono::duration<double>(timeout_).count());
    if (!stopped.empty())
      why += fmt::format("; {} {} stopped by a signal", list(stopped), stopped.size() > 1 ? "are" : "is");
    return why;
  }

  /// Makes messages that need more from this rank fail on all ranks. Only the first reason is kept.
  void end_for_all(const std::string& why, std::uint32_t ending = SharedHeader::failed) {
    has_seen_end_ = true;
    std::uint32_t none = 0;
    if (header_.is_over.compare_exchange_strong(none, SharedHeader::writing)) {
      const auto size = std::min(why.size(), header_.why.size() - 1);
      std::memcpy(header_.why.data(), why.data(), size);
      header_.is_over.store(ending);
    }
    wake();
  }

  void throw_if_over() {
    if (header_.is_over.load() == 0) return;
    has_seen_end_ = true;
    for (int i = 0; i < 100 && header_.is_over.load() == SharedHeader::writing; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool is_written = header_.is_over.load() != SharedHeader::writing;
    fail(is_written ? header_.why.data() : "another rank has failed");
  }

  std::unique_ptr<Communicator> met_;
  std::unique_ptr<SharedSegment> segment_;
  SharedHeader& header_;
  std::vector<SharedMemoryOffer> ranks_;
  std::chrono::milliseconds timeout_;
  std::uint64_t slots_;
  std::int64_t slot_bytes_;

  std::mutex mutex_;              // each device's backward pass has its own thread
  std::deque<Message> messages_;  // the first one is finished_.message
  std::uint64_t next_piece_ = 0;
  Cursor published_, reduced_, finished_;
  std::uint64_t published_by_all_ = 0, reduced_by_all_ = 0, consumed_by_all_ = 0;
  std::vector<const std::byte*> sources_;
  Time waiting_since_, last_check_;
  std::atomic<bool> has_seen_end_ = false;  // set by give_up() too, which doesn't wait for the lock
  bool spins_;                              // false if there are more ranks than cores
};

}  // namespace

/// Makes `met` use shared memory, or returns why it can't. The result is the same on all ranks.
std::string share_memory(std::unique_ptr<Communicator>& met, const SharedMemoryOptions& options) {
  const auto world = met->world_size();
  SharedMemoryOffer offer;
  offer.pid = ::getpid();
  offer.slot_bytes = options.slot_bytes;
  offer.slots = options.slots;
  Descriptor file;
  SharedMemoryPart part;
  if (met->rank() == 0) {
    part = make_shared_memory(file, offer, SharedSegment::size(world, offer.slots, offer.slot_bytes));
    std::memcpy(offer.why_not.data(), part.why_not.data(),
                std::min(part.why_not.size(), offer.why_not.size() - 1));
  }
  std::vector<SharedMemoryOffer> ranks;
  for (const auto& bytes :
       met->gather_bytes(std::string(reinterpret_cast<const char*>(&offer), sizeof offer)))
    std::memcpy(&ranks.emplace_back(), bytes.data(), std::min(bytes.size(), sizeof offer));
  // A process emulated by QEMU sees another start time for itself than the other processes do.
  for (auto& rank : ranks) rank.start = process_state(rank.pid).start;
  const auto& first = ranks.front();
  if (first.why_not[0] != '\0') return first.why_not.data();
  if (met->rank() != 0)
    part = map_shared_memory(first, SharedSegment::size(world, first.slots, first.slot_bytes));
  const auto whys = met->gather_bytes(part.why_not);
  for (std::size_t rank = 0; rank < whys.size(); ++rank)
    if (!whys[rank].empty()) return fmt::format("rank {}: {}", rank, whys[rank]);
  met = std::make_unique<SharedMemoryCommunicator>(std::move(met), std::move(part.segment), std::move(ranks),
                                                   options.timeout);
  return "";
}

}  // namespace detail
#endif

std::unique_ptr<Communicator> over_shared_memory(std::unique_ptr<Communicator> met,
                                                 const SharedMemoryOptions& options) {
  const auto& launch = met->launch();
  if (launch.world_size == 1) return met;
  if (options.slots < 1)
    throw ArgumentError(fmt::format("SharedMemoryOptions::slots is {}: must be at least 1", options.slots));
  if (options.slot_bytes < 64 * launch.world_size || options.slot_bytes % 64 != 0)
    throw ArgumentError(
        fmt::format("SharedMemoryOptions::slot_bytes is {}: must be a multiple of 64 that is at least {}",
                    options.slot_bytes, 64 * launch.world_size));
  std::string why;
  if (launch.local_world_size != launch.world_size)
    why = fmt::format("{} of {} processes are on this machine", launch.local_world_size, launch.world_size);
  else
#ifdef __linux__
    why = detail::share_memory(met, options);
#else
    why = "processes can share memory only on Linux";
#endif
  if (!why.empty() && options.warn) options.warn(fmt::format("the processes don't share memory: {}", why));
  return met;
}

}  // namespace etude::inline v0
