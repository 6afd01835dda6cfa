#include "etude/libtorch/gradient_hook.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <utility>

namespace etude::inline v0::libtorch {

GradientHook::GradientHook(const torch::Tensor& parameter, std::function<void()> call)
    : node_(torch::autograd::impl::grad_accumulator(parameter)) {
  if (!node_) return;
  using torch::autograd::variable_list;
  key_ = node_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [call = std::move(call)](const variable_list& outputs, const variable_list&) {
        call();
        return outputs;
      }));
}

GradientHook::~GradientHook() {
  if (node_) node_->del_post_hook(key_);
}

bool GradientHook::is_hooked_to(const torch::Tensor& parameter) const {
  return torch::autograd::impl::try_get_grad_accumulator(parameter) == node_;
}

}  // namespace etude::inline v0::libtorch
