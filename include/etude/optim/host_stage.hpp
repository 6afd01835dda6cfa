#pragma once

#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "etude/libtorch/device_event.hpp"

namespace etude::inline v0 {

/// The options of a tensor on the host that is copied to and from a device: pinned for an accelerator, so
/// that copies are asynchronous.
torch::TensorOptions on_host(const torch::TensorOptions& options);

/// Takes pieces of a device's vectors to the host and back. They are numbered from 0, and one of two
/// consecutive pieces may be on its way while the other is used.
class HostStage {
 public:
  /// Pieces have up to `length` elements of this device and type.
  HostStage(std::int64_t length, const torch::TensorOptions& options);

  /// Begins to copy a piece, both tensors of one length.
  void fetch(std::size_t number, const torch::Tensor& values, const torch::Tensor& gradients);

  struct Piece {
    torch::Tensor values, gradients;
  };
  /// The copies on the host, once they are there.
  Piece get(std::size_t number);

  /// Begins to copy the values of that piece back.
  void put_back(std::size_t number, const torch::Tensor& values);

 private:
  struct Slot {
    Piece room;
    Piece piece;
    DeviceEvent here;
  };
  Slot& slot(std::size_t number) { return slots_[number % slots_.size()]; }

  std::array<Slot, 2> slots_;
};

}  // namespace etude::inline v0
