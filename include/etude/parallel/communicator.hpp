#pragma once

#include <torch/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/io/launch.hpp"

namespace etude::inline v0 {

/// Waits until a message that has been begun has arrived. May be called only once.
using PendingMessage = std::function<void()>;

/// Connects the processes of a training. All of them call the same functions in the same order, with
/// contiguous tensors of the same size and dtype. The base class is for a training with a single process: it
/// opens no connection and sends nothing. Functions throw CommunicationError if a process doesn't take part.
class Communicator {
 public:
  explicit Communicator(Launch launch = {}) : launch_(std::move(launch)) {}
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  const Launch& launch() const { return launch_; }
  std::int64_t rank() const { return launch_.rank; }
  std::int64_t world_size() const { return launch_.world_size; }

  /// Sums a tensor over all processes, in place. The tensor must not be used before the message has arrived.
  virtual PendingMessage begin_sum(const torch::Tensor& tensor);
  void sum(const torch::Tensor& tensor) { begin_sum(tensor)(); }

  /// Sums a tensor over all processes, in place, but each process gets only its part of the sum: the flat
  /// tensor has `world_size` equal parts, in the order of the ranks. The rest of the tensor is unspecified
  /// afterwards. Throws ArgumentError if the number of elements isn't a multiple of `world_size`.
  virtual PendingMessage begin_sum_parts(const torch::Tensor& tensor);

  /// Replaces each of the `world_size` equal parts of the flat tensor by the one from its rank, in place.
  /// Throws ArgumentError as begin_sum_parts() does.
  virtual void gather_parts(const torch::Tensor& tensor);

  /// Replaces a tensor by the one of rank `from`, in place.
  virtual void broadcast(const torch::Tensor& tensor, std::int64_t from = 0);

  /// The tensors of all ranks, stacked: [world_size, ...]. By default uses gather_parts().
  virtual torch::Tensor gather(const torch::Tensor& tensor);

  /// The bytes of all ranks, each of any length.
  std::vector<std::string> gather_bytes(const std::string& bytes);

  /// Returns once all processes have called it.
  virtual void barrier();

  /// Called by a process that leaves because of an exception. In the other processes, messages that need
  /// more from this one throw CommunicationError with its rank and the reason; what it has sent arrives.
  virtual void give_up(const std::string& reason);

  /// The seconds that this process has waited for messages.
  double waited() const { return waited_; }

 protected:
  /// Counts its lifetime as waiting.
  class Waiting {
   public:
    explicit Waiting(Communicator& communicator) : communicator_(communicator) {}
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting();

   private:
    Communicator& communicator_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

  /// The number of elements in each of `world_size` equal parts of a tensor.
  std::int64_t part_of(const torch::Tensor& tensor) const;

  /// Sums a number on `device` over all processes. Throws CommunicationError if the result is wrong.
  void check_sum(torch::Device device);

  /// Throws CommunicationError that names this rank.
  [[noreturn]] void fail(std::string_view why) const;

 private:
  Launch launch_;
  double waited_ = 0;
};

}  // namespace etude::inline v0
