#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

// LibTorch's targets say whether it has Gloo; their packages leave out Gloo's own headers.
#if defined(USE_C10D_GLOO) && __has_include(<gloo/algorithm.h>)
#define ETUDE_HAS_GLOO 1
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#else
#define ETUDE_HAS_GLOO 0
#endif

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/parallel/gloo.hpp"

namespace etude::inline v0 {

#if ETUDE_HAS_GLOO
namespace detail {

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const Launch& launch, const GlooOptions& options)
      : Communicator(launch), options_(options), store_(meet()), group_(join()) {
    check_sum();
  }

  PendingMessage begin_sum(const torch::Tensor& tensor) override {
    std::vector<torch::Tensor> list{tensor};
    return blaming("sum", [&] { return later("sum", group_->allreduce(list)); });
  }

  void broadcast(const torch::Tensor& tensor, std::int64_t from) override {
    std::vector<torch::Tensor> list{tensor};
    c10d::BroadcastOptions to;
    to.rootRank = from;
    blaming("broadcast", [&] { group_->broadcast(list, to)->wait(); });
  }

  torch::Tensor gather(const torch::Tensor& tensor) override {
    auto shape = tensor.sizes().vec();
    shape.insert(shape.begin(), world_size());
    auto all = torch::empty(shape, tensor.options());
    auto flat = all.view({-1}), own = tensor.contiguous().view({-1});
    if (own.numel() > 0) blaming("gather", [&] { group_->_allgather_base(flat, own)->wait(); });
    return all;
  }

  void barrier() override {
    blaming("barrier", [&] { group_->barrier()->wait(); });
  }

 private:
  using Store = c10::intrusive_ptr<c10d::Store>;
  using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

  Store meet() const {
    const auto& launch = this->launch();
    c10d::TCPStoreOptions to;
    to.port = static_cast<std::uint16_t>(launch.master_port);
    to.isServer = launch.rank == 0 && !launch.agent_serves_store;
    to.numWorkers = static_cast<std::size_t>(launch.world_size);
    to.waitWorkers = !launch.agent_serves_store;
    to.timeout = options_.timeout;
    try {
      auto store = c10::make_intrusive<c10d::TCPStore>(launch.master_addr, to);
      store->setTimeout(options_.timeout);
      return c10::make_intrusive<c10d::PrefixStore>(fmt::format("etude/{}", launch.restart_count), store);
    } catch (const std::exception& error) {
      throw CommunicationError(fmt::format(
          "rank {} of {}: the processes can't meet at {}:{} (MASTER_ADDR, MASTER_PORT): {}", launch.rank,
          launch.world_size, launch.master_addr, launch.master_port, first_line(error.what())));
    }
  }

  Group join() const {
    auto to = c10d::ProcessGroupGloo::Options::create(options_.timeout);
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    const bool is_local = launch().local_world_size == launch().world_size;
    try {
      to->devices.push_back(interface  ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                            : is_local ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                       : c10d::ProcessGroupGloo::createDefaultDevice());
      return c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", store_), static_cast<int>(rank()),
          static_cast<int>(world_size()), to);
    } catch (const std::exception& error) {
      throw CommunicationError(fmt::format("rank {} of {}: Gloo can't connect the processes: {}", rank(),
                                           world_size(), first_line(error.what())));
    }
  }

  /// Another LibTorch, or a firewall in between, shows here, not in the midst of a training.
  void check_sum() {
    const auto one = torch::full({1}, static_cast<double>(rank() + 1), torch::kDouble);
    sum(one);
    const auto expected = static_cast<double>(world_size()) * static_cast<double>(world_size() + 1) / 2;
    if (one.item<double>() != expected)
      throw CommunicationError(
          fmt::format("rank {} of {}: the sum of 1 to {} over all processes is {}, not {}", rank(),
                      world_size(), world_size(), one.item<double>(), expected));
  }

  template <class Work>
  PendingMessage later(const char* what, Work work) {
    return [this, what, work] { blaming(what, [&] { work->wait(); }); };
  }

  template <class Act>
  std::invoke_result_t<Act> blaming(const char* what, Act act) {
    try {
      return act();
    } catch (const std::exception& error) {
      throw_failure(what, error.what());
    }
  }

  [[noreturn]] void throw_failure(const char* what, const std::string& why) {
    const auto absent = missing();
    const auto cause = absent.empty()
                           ? std::string("all ranks are still there")
                           : fmt::format("rank{} {} {} missing", absent.size() > 1 ? "s" : "",
                                         fmt::join(absent, ", "), absent.size() > 1 ? "are" : "is");
    throw CommunicationError(fmt::format("rank {} of {}: a {} failed, and {}: {}", rank(), world_size(), what,
                                         cause, first_line(why)));
  }

  /// The ranks that didn't notice the failure within the grace period: those that failed.
  std::vector<std::int64_t> missing() {
    const auto key = [](std::int64_t rank) { return fmt::format("failed/{}", rank); };
    std::vector<std::int64_t> absent;
    try {
      store_->set(key(rank()), "1");
      const auto until = std::chrono::steady_clock::now() + options_.grace;
      for (std::int64_t i = 0; i < world_size(); ++i) {
        bool is_here = store_->check({key(i)});  // Waiting for a key prints warnings.
        while (!is_here && std::chrono::steady_clock::now() < until) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          is_here = store_->check({key(i)});
        }
        if (!is_here) absent.push_back(i);
      }
    } catch (const std::exception&) {  // The store went down with rank 0, which serves it.
      if (rank() != 0 && !launch().agent_serves_store) return {0};
    }
    return absent;
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  GlooOptions options_;
  Store store_;
  Group group_;
};

}  // namespace detail
#endif

ETUDE_INLINE std::unique_ptr<Communicator> join_with_gloo(const Launch& launch, const GlooOptions& options) {
  if (launch.world_size == 1) return std::make_unique<Communicator>(launch);
#if ETUDE_HAS_GLOO
  return std::make_unique<detail::GlooCommunicator>(launch, options);
#else
  static_cast<void>(options);
  throw ArgumentError(fmt::format(
      "WORLD_SIZE is {}: must be 1, because this build of Etude or LibTorch has no Gloo", launch.world_size));
#endif
}

}  // namespace etude::inline v0
