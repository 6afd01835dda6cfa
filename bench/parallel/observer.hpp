#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "../measure.hpp"
#include "../train/workloads.hpp"
#include "etude/parallel/distributed_data_parallel.hpp"

/// Observes a training in several processes from outside the library.
namespace bench {

/// The bytes that a process must send in the timed steps if sums go around a ring, which sends the least.
struct Traffic {
  double bytes = 0;
  std::int64_t messages = 0;
  double seconds_to_join = 0;
};
inline Traffic traffic;

class CountingCommunicator final : public etude::Communicator {
 public:
  explicit CountingCommunicator(std::shared_ptr<etude::Communicator> inner)
      : Communicator(inner->launch()), inner_(std::move(inner)) {}

  etude::PendingMessage begin_sum(const torch::Tensor& tensor) override {
    count(tensor, 2 * (ranks() - 1) / ranks());
    return inner_->begin_sum(tensor);
  }
  etude::PendingMessage begin_sum_parts(const torch::Tensor& tensor) override {
    count(tensor, (ranks() - 1) / ranks());
    return inner_->begin_sum_parts(tensor);
  }
  void gather_parts(const torch::Tensor& tensor) override {
    count(tensor, (ranks() - 1) / ranks());
    inner_->gather_parts(tensor);
  }
  void broadcast(const torch::Tensor& tensor, std::int64_t from) override {
    count(tensor, from == rank() ? ranks() - 1 : 0);
    inner_->broadcast(tensor, from);
  }
  torch::Tensor gather(const torch::Tensor& tensor) override {
    count(tensor, ranks() - 1);
    return inner_->gather(tensor);
  }
  void barrier() override { inner_->barrier(); }
  void give_up(const std::string& reason) override { inner_->give_up(reason); }

 private:
  double ranks() const { return static_cast<double>(world_size()); }

  void count(const torch::Tensor& tensor, double times) {
    if (training_clock.calls <= training_clock.first || training_clock.calls > training_clock.last) return;
    traffic.bytes += static_cast<double>(tensor.nbytes()) * times;
    ++traffic.messages;
  }

  std::shared_ptr<etude::Communicator> inner_;
};

/// DistributedDataParallel with a CountingCommunicator.
struct Observed {
  using etude_policy = void;
  static std::shared_ptr<etude::Communicator> join(const etude::TrainingArguments& args) {
    std::shared_ptr<etude::Communicator> joined;
    traffic = {.seconds_to_join = seconds([&] { joined = etude::DistributedDataParallel::join(args); })};
    return std::make_shared<CountingCommunicator>(std::move(joined));
  }
};

/// ShardedDataParallel with a CountingCommunicator.
template <int Stage>
struct ObservedShards : Observed {
  static constexpr etude::ShardStage stage = etude::ShardedDataParallel<Stage>::stage;
};

/// While it exists, counts the bytes of the tensors that this thread allocates on the CPU. LibTorch calls it.
class TensorMemory {
 public:
  TensorMemory()
      : counter_(std::make_shared<Counter>()), scope_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  /// The peak number of bytes since `training_clock` started timing.
  std::int64_t peak() const { return counter_->peak; }

 private:
  template <class Function>
  struct Types;
  template <class Size>
  struct Types<void (c10::MemoryReportingInfoBase::*)(void*, std::int64_t, Size, Size, c10::Device)> {
    using Total = Size;  // signed in old LibTorch
  };
  using Total = Types<decltype(&c10::MemoryReportingInfoBase::reportMemoryUsage)>::Total;

  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t bytes, Total, Total, c10::Device) override {
      now += bytes;
      if (training_clock.calls > training_clock.first) peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t now = 0, peak = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard scope_;
};

}  // namespace bench
