#include "etude/parallel/nccl.hpp"

#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/parallel/rendezvous.hpp"

// LibTorch's CMake targets define USE_C10D_NCCL if it has NCCL; the headers come with the CUDA toolkit and
// NCCL.
#if ETUDE_HAS_GLOO && defined(USE_C10D_NCCL) && __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#define ETUDE_HAS_NCCL 1
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#define ETUDE_HAS_NCCL 0
#endif

namespace etude::inline v0 {

#if ETUDE_HAS_NCCL
namespace detail {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> met, torch::Device device, std::chrono::milliseconds timeout)
      : Communicator(met->launch()), met_(std::move(met)), device_(device), group_(join(timeout)) {
    check_sum(device);  // NCCL connects lazily, so a shared GPU or a version mismatch fails here
  }

  PendingMessage begin_sum(const torch::Tensor& tensor) override {
    if (tensor.is_cpu()) return met_->begin_sum(tensor);
    std::vector<torch::Tensor> list{tensor};
    return begin("sum", [&] { return group_->allreduce(list); });
  }

  PendingMessage begin_sum_parts(const torch::Tensor& tensor) override {
    if (tensor.is_cpu()) return met_->begin_sum_parts(tensor);
    const auto part = part_of(tensor);
    if (part == 0) return [] {};
    auto flat = tensor.view({-1});
    auto own = flat.narrow(0, rank() * part, part);
    return begin("sum", [&] { return group_->_reduce_scatter_base(own, flat); });
  }

  void gather_parts(const torch::Tensor& tensor) override {
    if (tensor.is_cpu()) return met_->gather_parts(tensor);
    const auto part = part_of(tensor);
    if (part == 0) return;
    auto flat = tensor.view({-1});
    auto own = flat.narrow(0, rank() * part, part);
    begin("gather", [&] { return group_->_allgather_base(flat, own); })();
  }

  void broadcast(const torch::Tensor& tensor, std::int64_t from) override {
    if (tensor.is_cpu()) return met_->broadcast(tensor, from);
    std::vector<torch::Tensor> list{tensor};
    c10d::BroadcastOptions to;
    to.rootRank = from;
    begin("broadcast", [&] { return group_->broadcast(list, to); })();
  }

  void barrier() override { met_->barrier(); }

  void give_up(const std::string& reason) override {
    met_->give_up(reason);
    group_->abort();  // operations that the other ranks never join would block the device forever
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> join(std::chrono::milliseconds timeout) const {
    auto to = c10d::ProcessGroupNCCL::Options::create();
    to->timeout = timeout;
    c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
    if (world_size() > 1) store = meet(launch(), timeout);
    try {
      const c10::cuda::CUDAGuard here(device_);
      return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank()),
                                                         static_cast<int>(world_size()), to);
    } catch (const std::exception& error) {
      fail(fmt::format("NCCL can't connect the processes: {}", first_line(error.what())));
    }
  }

  template <class Act>
  PendingMessage begin(const char* what, Act act) {
    try {
      const c10::cuda::CUDAGuard here(device_);
      auto work = act();
      return [this, what, work = std::move(work)] {
        const Waiting waiting(*this);
        try {
          work->wait();
        } catch (const std::exception& error) {
          fail(fmt::format("a {} failed: {}", what, first_line(error.what())));
        }
      };
    } catch (const std::exception& error) {
      fail(fmt::format("a {} failed: {}", what, first_line(error.what())));
    }
  }

  std::unique_ptr<Communicator> met_;
  torch::Device device_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace detail
#endif

bool has_nccl() { return ETUDE_HAS_NCCL == 1; }

std::unique_ptr<Communicator> over_nccl(std::unique_ptr<Communicator> met, torch::Device device,
                                        std::chrono::milliseconds timeout) {
  if (!device.is_cuda())
    throw ArgumentError(fmt::format("the device of NCCL is {}: must be a GPU", device.str()));
#if ETUDE_HAS_NCCL
  return std::make_unique<detail::NcclCommunicator>(std::move(met), device, timeout);
#else
  static_cast<void>(met), static_cast<void>(timeout);
  throw ArgumentError("NCCL: this LibTorch has none, or the compiler finds no <nccl.h>");
#endif
}

}  // namespace etude::inline v0
