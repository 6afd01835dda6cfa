#pragma once

#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/optim/flat_layout.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude::inline v0 {

ETUDE_INLINE std::vector<torch::Tensor> FlatLayout::allocate(double value) const {
  std::vector<torch::Tensor> result;
  for (const Buffer& buffer : buffers) result.push_back(at::full({buffer.size}, value, buffer.options));
  return result;
}

ETUDE_INLINE const FlatSlot* FlatLayout::find(const std::string& name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &slots[found->second];
}

namespace detail {

inline void check_trainable(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !at::isFloatingType(tensor.scalar_type())) {
    throw ArgumentError(fmt::format(
        "parameter '{}' is {} {}: must be dense, real and floating-point to be trained (freeze it, with "
        "requires_grad_(false))",
        name, tensor.layout() == at::kStrided ? "dense" : "sparse", c10::toString(tensor.scalar_type())));
  }
}

/// Different tensors over the same memory would be separated in the flat buffers.
inline void check_apart(const NamedTensors& parameters) {
  std::vector<std::tuple<const char*, const char*, const std::string*>> spans;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense()) continue;
    const auto* begin = static_cast<const char*>(tensor.data_ptr());
    spans.emplace_back(begin, begin + tensor.nbytes(), &name);
  }
  std::ranges::sort(spans);
  for (std::size_t i = 1; i < spans.size(); ++i) {
    if (std::get<0>(spans[i]) < std::get<1>(spans[i - 1])) {
      throw ArgumentError(fmt::format(
          "parameters '{}' and '{}' are different tensors over the same memory; to tie them, register one "
          "tensor under both names",
          *std::get<2>(spans[i - 1]), *std::get<2>(spans[i])));
    }
  }
}

}  // namespace detail

ETUDE_INLINE FlatPlan plan_flat(const std::vector<NamedTensors>& groups, const FlatLayout* previous) {
  struct Planned {
    FlatSlot slot;
    torch::Tensor parameter;
  };
  auto layout = std::make_shared<FlatLayout>();
  FlatPlan plan;
  std::vector<Planned> planned;
  NamedTensors distinct;
  std::unordered_set<const void*> seen;
  std::unordered_set<std::string> names;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const auto& [name, tensor] : groups[group]) {
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      if (!names.insert(name).second) {
        throw ArgumentError(fmt::format("two different parameters are named '{}'", name));
      }
      if (!tensor.requires_grad() && !(previous && previous->find(name))) {
        plan.frozen.emplace_back(name, tensor);
        continue;
      }
      detail::check_trainable(name, tensor);
      const auto options = torch::TensorOptions().dtype(tensor.scalar_type()).device(tensor.device());
      const auto buffer = std::ranges::find_if(layout->buffers, [&](const FlatLayout::Buffer& b) {
        return b.options.dtype() == options.dtype() && b.options.device() == options.device();
      });
      const auto index = static_cast<std::size_t>(buffer - layout->buffers.begin());
      if (buffer == layout->buffers.end()) layout->buffers.push_back({options, 0});
      const torch::Tensor shape =
          tensor.is_non_overlapping_and_dense() ? tensor.detach() : tensor.detach().contiguous();
      planned.push_back(
          {{name, group, index, 0, shape.numel(), shape.sizes().vec(), shape.strides().vec()}, tensor});
      distinct.emplace_back(name, tensor);
    }
  }
  detail::check_apart(distinct);
  std::ranges::stable_sort(planned, {},
                           [](const Planned& p) { return std::pair(p.slot.buffer, p.slot.group); });
  for (auto& [slot, parameter] : planned) {
    FlatLayout::Buffer& buffer = layout->buffers[slot.buffer];
    slot.offset = buffer.size;
    buffer.size += detail::padded(slot.size, static_cast<std::int64_t>(parameter.element_size()));
    layout->by_name.emplace(slot.name, layout->slots.size());
    layout->slots.push_back(std::move(slot));
    plan.parameters.push_back(parameter);
  }
  plan.layout = std::move(layout);
  return plan;
}

}  // namespace etude::inline v0
