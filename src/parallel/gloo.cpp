#include "etude/parallel/gloo.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/version.h>

#include "etude/parallel/rendezvous.hpp"
#if ETUDE_HAS_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/sigpipe.hpp"

namespace etude::inline v0 {

#if ETUDE_HAS_GLOO
namespace detail {

namespace {

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const Launch& launch, const GlooOptions& options)
      : Communicator(launch), options_(options), store_(meet(launch, options.timeout)), group_(join()) {
    check_sum(torch::kCPU);  // fails here if a rank has another LibTorch or a firewall is in between
  }

  /// A group's destructor waits for its messages, which after a failure may take until the timeout.
  ~GlooCommunicator() override {
    if (!failure().empty() && unfinished_ > 0) static_cast<void>(group_.release());
  }

  PendingMessage begin_sum(const torch::Tensor& tensor) override {
    std::vector<torch::Tensor> list{tensor};
    return begin("sum", tensor, [&] { return group_->allreduce(list); });
  }

  PendingMessage begin_sum_parts(const torch::Tensor& tensor) override {
    const auto part = part_of(tensor);
    if (part == 0) return [] {};
    auto flat = tensor.view({-1});
    auto sent = flat.view(torch::kByte);
    auto all = torch::empty({world_size(), part}, tensor.options());
    auto received = all.view({-1}).view(torch::kByte);
    std::vector<std::int64_t> evenly;
    auto arrived = begin("sum of parts", tensor, [&] {
      return group_->alltoall_base(received, sent, evenly, evenly, c10d::AllToAllOptions());
    });
    auto own = flat.narrow(0, rank() * part, part);
    return [arrived = std::move(arrived), all, own]() mutable {
      arrived();
      at::sum_out(own, all, 0, false, own.scalar_type());
    };
  }

  void gather_parts(const torch::Tensor& tensor) override {
    const auto part = part_of(tensor);
    if (part == 0) return;
    auto flat = tensor.view({-1});
    auto own = flat.narrow(0, rank() * part, part);
    begin("gather", own, [&] { return all_gather(flat, own); })();
  }

  void broadcast(const torch::Tensor& tensor, std::int64_t from) override {
    std::vector<torch::Tensor> list{tensor};
    c10d::BroadcastOptions to;
    to.rootRank = from;
    begin("broadcast", tensor, [&] { return group_->broadcast(list, to); })();
  }

  void barrier() override {
    begin("barrier", {}, [&] { return group_->barrier(); })();
  }

  void give_up(const std::string& reason) override {
    if (!failure().empty()) return;
    const auto why = fmt::format("rank {} ended the training: {}", rank(), reason);
    try {
      ask([why, own = failed_key(rank())](c10d::Store& store) {
        store.set("ended", std::vector<std::uint8_t>(why.begin(), why.end()));
        note_end(store, own);
      });
    } catch (const std::exception&) {  // without the store, the others see the connection close
    }
    remember(why);
    if (rank() == 0 && !launch().agent_serves_store) missing();  // waits, since the store ends with rank 0
  }

 private:
  using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
  using Work = decltype(std::declval<c10d::ProcessGroupGloo&>().barrier());

  /// Gathers every rank's `own` into `flat`; `own` may be this rank's part of it.
  Work all_gather(torch::Tensor& flat, torch::Tensor& own) {
#if TORCH_VERSION_MAJOR >= 2
    return group_->_allgather_base(flat, own);
#else
    std::vector<std::vector<torch::Tensor>> parts{flat.chunk(world_size())};
    std::vector<torch::Tensor> list{own.clone()};
    return group_->allgather(parts, list);
#endif
  }

  Group join() const {
    auto to = c10d::ProcessGroupGloo::Options::create(options_.timeout);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    const bool is_local = launch().local_world_size == launch().world_size;
    try {
      to->devices.push_back(interface  ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                            : is_local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                       : c10d::ProcessGroupGloo::createDefaultDevice());
      return within(options_.timeout + grace_of_joining, [store = store_, of = launch(), to] {
        return c10::make_intrusive<c10d::ProcessGroupGloo>(
            c10::make_intrusive<c10d::PrefixStore>("gloo", store), static_cast<int>(of.rank),
            static_cast<int>(of.world_size), to);
      });
    } catch (const std::exception& error) {
      fail(fmt::format("Gloo can't connect the processes: {}", first_line(error.what())));
    }
  }

  template <class Act>
  PendingMessage begin(const char* what, const torch::Tensor& tensor, Act act) {
    if (const auto earlier = failure(); !earlier.empty()) fail(earlier);
    note_message(what, tensor);
    try {
      auto work = act();
      ++unfinished_;
      return [this, what, work = std::move(work)] { wait(what, *work); };
    } catch (const std::exception& error) {
      throw_failure(what, error.what());
    }
  }

  template <class Work>
  void wait(const char* what, Work& work) {
    const Waiting waiting(*this);
    try {
      try {
        if (!work.isCompleted()) work.wait(std::chrono::milliseconds(100));
      } catch (const std::exception&) {
        const auto start = std::chrono::steady_clock::now();
        auto next_look = start + std::chrono::seconds(1);
        while (!work.isCompleted()) {  // other ranks may have given up without closing their connections
          if (!reason_of_end().empty()) break;
          if (std::chrono::steady_clock::now() >= next_look) {
            compare_messages();
            next_look += std::chrono::seconds(5);
          }
          for (int i = 0; i < 10 && !work.isCompleted(); ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        if (!work.isCompleted()) throw;
      }
      work.wait();
      --unfinished_;
    } catch (const std::exception& error) {
      if (work.isCompleted()) --unfinished_;
      throw_failure(what, error.what());
    }
  }

  [[noreturn]] void throw_failure(const char* what, const std::string& why) {
    if (const auto earlier = failure(); !earlier.empty()) fail(earlier);
    if (const auto reason = reason_of_end(); !reason.empty()) fail(remember(reason));
    compare_messages();
    const auto absent = missing();
    compare_messages();  // with messages that the others have published meanwhile
    if (const auto reason = reason_of_end(); !reason.empty()) fail(remember(reason));
    const auto cause = absent.empty()
                           ? std::string("all ranks are still there")
                           : fmt::format("rank{} {} {} missing", absent.size() > 1 ? "s" : "",
                                         fmt::join(absent, ", "), absent.size() > 1 ? "are" : "is");
    fail(remember(fmt::format("a {} failed, and {}: {}", what, cause, first_line(why))));
  }

  /// Describes a message. All ranks must send the same ones in the same order.
  struct Sent {
    const char* what = "";
    torch::ScalarType dtype = torch::kByte;
    std::int64_t bytes = 0;

    std::string text() const {
      if (bytes == 0) return fmt::format("a {}", what);
      return fmt::format("{} bytes of {} in a {}", bytes, c10::toString(dtype), what);
    }
  };

  void note_message(const char* what, const torch::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    auto& slot = sent_[static_cast<std::size_t>(messages_++) % sent_.size()];
    slot = {what};
    if (tensor.defined()) slot = {what, tensor.scalar_type(), static_cast<std::int64_t>(tensor.nbytes())};
  }

  /// The latest messages, one per line, with their numbers.
  std::string latest_messages() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    const auto kept = static_cast<std::int64_t>(sent_.size());
    for (auto number = std::max<std::int64_t>(messages_ - kept, 0); number < messages_; ++number)
      text += fmt::format("{} {}\n", number, sent_[static_cast<std::size_t>(number % kept)].text());
    return text;
  }

  /// Ends the training for all ranks if this rank and rank 0 have sent different messages. Gloo would just
  /// wait, since it identifies messages by number. Called when a message is late.
  void compare_messages() {
    auto compared =
        begin_asking([own = latest_messages(), rank = rank(), world_size = world_size()](c10d::Store& store) {
          const auto key_of = [](std::int64_t of_rank) { return fmt::format("messages/{}", of_rank); };
          const auto compare_with = [&](std::int64_t other) {
            if (!store.check({key_of(other)})) return;
            const auto bytes = store.get(key_of(other));
            const std::string theirs(bytes.begin(), bytes.end());
            const auto why = rank == 0 ? difference(own, theirs, other) : difference(theirs, own, rank);
            if (!why.empty()) store.set("ended", std::vector<std::uint8_t>(why.begin(), why.end()));
          };
          store.set(key_of(rank), std::vector<std::uint8_t>(own.begin(), own.end()));
          if (rank > 0) return compare_with(0);
          for (std::int64_t other = 1; other < world_size; ++other) compare_with(other);
        });
    compared.wait_for(options_.grace);  // if the store is gone, the timeout ends the wait
  }

  /// The lines of `latest_messages`, by number.
  static std::map<std::int64_t, std::string> by_number(const std::string& text) {
    std::map<std::int64_t, std::string> result;
    std::istringstream lines(text);
    std::int64_t number = 0;
    for (std::string line; lines >> number >> std::ws && std::getline(lines, line);) result[number] = line;
    return result;
  }

  /// Describes the first message in which rank 0 and another rank differ; "" if there is none.
  static std::string difference(const std::string& of_first, const std::string& of_other, std::int64_t rank) {
    const auto first = by_number(of_first);
    for (const auto& [number, text] : by_number(of_other))
      if (const auto at = first.find(number); at != first.end() && at->second != text)
        return fmt::format("rank 0 sends {}, but rank {} {}: all ranks must send the same messages",
                           at->second, rank, text);
    return "";
  }

  /// Keeps the first failure, which all later calls report too: the group can't recover.
  std::string remember(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    return failure_;
  }

  std::string failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  /// The reason why a rank gave up; "" if none did or the store hasn't answered yet.
  std::string reason_of_end() {
    const std::lock_guard lock(asking_);
    if (!reason_.valid())
      reason_ = begin_asking([own = failed_key(rank())](c10d::Store& store) -> std::string {
        if (!store.check({"ended"})) return "";
        const auto text = store.get("ended");
        note_end(store, own);
        return {text.begin(), text.end()};
      });
    if (reason_.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) return "";
    try {
      return reason_.get();
    } catch (const std::exception&) {
      return rank() == 0 || launch().agent_serves_store ? "" : "rank 0 is missing, and the store with it";
    }
  }

  /// The ranks that failed: those that didn't report the failure within the grace period.
  std::vector<std::int64_t> missing() {
    std::vector<std::int64_t> absent;
    try {
      ask([own = failed_key(rank())](c10d::Store& store) { note_end(store, own); });
      const auto until = std::chrono::steady_clock::now() + options_.grace;
      for (std::int64_t i = 0; i < world_size(); ++i) {
        const auto is_here = [&] {  // polls, since waiting for a key prints warnings
          return ask([key = failed_key(i)](c10d::Store& store) { return store.check({key}); });
        };
        bool here = is_here();
        while (!here && std::chrono::steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          here = is_here();
        }
        if (!here) absent.push_back(i);
      }
    } catch (const std::exception&) {  // the store ended with rank 0, which serves it, or is cut off
      if (rank() != 0 && !launch().agent_serves_store) return {0};
    }
    return absent;
  }

  /// Asks the store. Throws after the grace period, since the store never answers if the connection is cut.
  template <class Act>
  std::invoke_result_t<Act, c10d::Store&> ask(Act act) {
    auto answer = begin_asking(std::move(act));
    if (is_silent_ || answer.wait_for(options_.grace) != std::future_status::ready) {
      is_silent_ = true;
      throw CommunicationError("the store doesn't answer");
    }
    return answer.get();
  }

  template <class Act>
  std::future<std::invoke_result_t<Act, c10d::Store&>> begin_asking(Act act) {
    return in_thread([store = store_, act = std::move(act)] {
      const WithoutSigpipe no_sigpipe;
      return act(*store);
    });
  }

  /// Tells the others that the rank of this key no longer waits for them.
  static void note_end(c10d::Store& store, const std::string& key) {
    store.set(key, std::vector<std::uint8_t>{1});
  }

  static std::string failed_key(std::int64_t rank) { return fmt::format("failed/{}", rank); }

  GlooOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  Group group_;
  std::atomic<int> unfinished_ = 0;  // number of messages in progress
  mutable std::mutex mutex_;
  std::string failure_;
  std::array<Sent, 64> sent_;  // the latest messages, by number
  std::int64_t messages_ = 0;  // number of messages begun
  std::mutex asking_;
  std::future<std::string> reason_;  // the reason of the end, once the store answers
  std::atomic<bool> is_silent_ = false;
};

}  // namespace

}  // namespace detail
#endif

std::unique_ptr<Communicator> join_with_gloo(const Launch& launch, const GlooOptions& options) {
  if (launch.world_size == 1) return std::make_unique<Communicator>(launch);
#if ETUDE_HAS_GLOO
  const detail::WithoutSigpipe
      no_sigpipe;  // Gloo's threads write to connections that the others may have closed
  return std::make_unique<detail::GlooCommunicator>(launch, options);
#else
  static_cast<void>(options);
  throw ArgumentError(fmt::format(
      "WORLD_SIZE is {}: must be 1, because this build of Etude or LibTorch has no Gloo", launch.world_size));
#endif
}

}  // namespace etude::inline v0
