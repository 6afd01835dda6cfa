#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/error.hpp"
#include "etude/forward.hpp"
#include "etude/linkage.hpp"
#include "etude/loss.hpp"
#include "etude/model.hpp"
#include "etude/reflect/type_name.hpp"

namespace etude {

ETUDE_INLINE std::int64_t count_items(const Tensors& labels) {
  if (labels.empty()) return 0;
  const auto& first = labels[0];
  return c10::isIntegralType(first.scalar_type(), false) ? first.ne(-100).sum().item<std::int64_t>()
                                                         : first.numel();
}

}  // namespace etude

namespace etude {
namespace detail {

ETUDE_INLINE void refuse_to_spread(const Tensors& outputs, const Tensors& labels) {
  if (outputs.size() != 1 || labels.size() != 1) return;
  const torch::Tensor &output = outputs[0], &target = labels[0];
  if (!output.is_floating_point() || !target.is_floating_point() || output.sizes() == target.sizes()) return;
  throw DataError(fmt::format(
      "the output {} and the target {} of a loss must have the same shape; LibTorch would broadcast them",
      describe(output), describe(target)));
}

ETUDE_INLINE torch::Tensor checked_loss(torch::Tensor loss) {
  if (loss.defined() && loss.numel() == 1) return loss.dim() == 0 ? loss : loss.reshape({});
  throw DataError(
      fmt::format("the loss must be a single number, not {}; give it reduction mean or sum", describe(loss)));
}

ETUDE_INLINE void throw_not_one_operand(const Tensors& tensors, std::string_view what) {
  throw DataError(
      fmt::format("the loss compares one output with one target, but there are {} {}: {}; a loss that takes "
                  "(const etude::Tensors&, const etude::Tensors&) gets all of them",
                  tensors.size(), what, describe(tensors)));
}

}  // namespace detail

}  // namespace etude
