#pragma once

#include <torch/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "etude/libtorch/device_event.hpp"

namespace etude::inline v0 {

/// Options for a host tensor that is copied to and from a device: pinned if the device is an accelerator, so
/// that copies are asynchronous.
torch::TensorOptions on_host(const torch::TensorOptions& options);

/// Copies pieces of a device's vectors to the host and back. Pieces are numbered from 0, and one can be in
/// transfer while the one before it is in use.
class HostStage {
 public:
  /// Pieces have up to `length` elements of this device and type.
  HostStage(std::int64_t length, const torch::TensorOptions& options);

  /// Begins to copy a piece. Both tensors have the same length.
  void fetch(std::size_t number, const torch::Tensor& values, const torch::Tensor& gradients);

  struct Piece {
    torch::Tensor values, gradients;
  };
  /// Waits for a piece's copies on the host and returns them.
  Piece get(std::size_t number);

  /// Begins to copy a piece's values back to the device.
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
