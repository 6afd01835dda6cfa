#include "etude/libtorch/batch_norm.hpp"

#include <ATen/ops/_batch_norm_impl_index_backward_native.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <torch/library.h>

namespace etude::inline v0::libtorch {

BatchNormOperator batch_norm_operator() {
  return {&at::native::_batch_norm_impl_index, &at::native::_batch_norm_impl_index_backward};
}

void replace_batch_norm_operator(const BatchNormOperator& replacement) {
  // LibTorch composes this operator from others, even below autograd, so ours must be registered for
  // autograd's keys.
  for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
    // Never destroyed: the operator may be called while the process ends.
    auto& library = *new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library.impl("_batch_norm_impl_index", replacement.forward);
    library.impl("_batch_norm_impl_index_backward", replacement.backward);
  }
}

}  // namespace etude::inline v0::libtorch
