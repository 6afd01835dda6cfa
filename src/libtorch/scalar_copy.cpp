#include "etude/libtorch/scalar_copy.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>

namespace etude::inline v0 {

void ScalarCopy::begin(const at::Tensor& value) {
  pending_ = true;
  on_its_way_ = value.is_cuda();
  if (!on_its_way_) {
    value_ = value.item<double>();
    return;
  }
  const auto source = value.detach();
  if (!host_.defined() || host_.scalar_type() != source.scalar_type())
    host_ = at::empty({1}, at::TensorOptions().dtype(source.scalar_type()).pinned_memory(true));
  host_.copy_(source.reshape({1}), /*non_blocking=*/true);
  event_.record(source.device());
}

double ScalarCopy::get() {
  pending_ = false;
  if (!on_its_way_) return value_;
  event_.wait();
  return host_.item<double>();
}

}  // namespace etude::inline v0
