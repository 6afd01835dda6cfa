#include "etude/optim/host_stage.hpp"

#include <ATen/ops/empty.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>

namespace etude::inline v0 {

torch::TensorOptions on_host(const torch::TensorOptions& options) {
  return options.device(torch::kCPU).pinned_memory(!options.device().is_cpu());
}

HostStage::HostStage(std::int64_t length, const torch::TensorOptions& options) {
  for (Slot& slot : slots_)
    slot.room = {at::empty({length}, on_host(options)), at::empty({length}, on_host(options))};
}

void HostStage::fetch(std::size_t number, const torch::Tensor& values, const torch::Tensor& gradients) {
  // Copies in one stream run in order, so this slot's previous piece has reached the device before it is
  // overwritten.
  auto& [room, piece, here] = slot(number);
  piece = {room.values.narrow(0, 0, values.numel()), room.gradients.narrow(0, 0, values.numel())};
  piece.values.copy_(values, /*non_blocking=*/true);
  piece.gradients.copy_(gradients, /*non_blocking=*/true);
  here.record(values.device());
}

HostStage::Piece HostStage::get(std::size_t number) {
  slot(number).here.wait();
  return slot(number).piece;
}

void HostStage::put_back(std::size_t number, const torch::Tensor& values) {
  values.copy_(slot(number).piece.values, /*non_blocking=*/true);
}

}  // namespace etude::inline v0
