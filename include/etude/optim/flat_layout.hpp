#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude::inline v0 {

/// The place of one parameter in the flat buffers. Offsets and sizes count elements.
struct FlatSlot {
  std::string name;
  std::size_t group = 0;
  std::size_t buffer = 0;
  std::int64_t offset = 0;
  std::int64_t size = 0;  ///< without the padding after it
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

  /// The parameter's part of a buffer, with its shape.
  torch::Tensor view(const torch::Tensor& buffer_tensor) const {
    return buffer_tensor.as_strided(sizes, strides, offset);
  }
};

/// The layout of the flat buffers: one buffer per device and dtype, with the groups one after another.
struct FlatLayout {
  struct Buffer {
    torch::TensorOptions options;
    std::int64_t size = 0;
  };

  std::vector<FlatSlot> slots;  ///< in memory order
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Buffer> buffers;

  std::vector<torch::Tensor> allocate(double value = 0) const;

  /// Null if no slot has that name.
  const FlatSlot* find(const std::string& name) const;
};

namespace detail {

/// Aligns every parameter to a cache line, for kernels that prefer aligned memory.
inline std::int64_t padded(std::int64_t elements, std::int64_t element_size) {
  const std::int64_t line = 64 / element_size;
  return (elements + line - 1) / line * line;
}

}  // namespace detail

/// A layout and the parameters in its order.
struct FlatPlan {
  std::shared_ptr<const FlatLayout> layout;
  std::vector<torch::Tensor> parameters;  ///< one per slot
  NamedTensors frozen;                    ///< left out: they don't require gradients
};

/// Lays out buffers for the parameters that require gradients or had a slot in `previous`. A tied parameter
/// (one tensor with several names) appears once, under its first name. Dense strides (channels last) are
/// kept, others become contiguous. Throws ArgumentError for parameters that can't be trained, overlap in
/// memory, or share a name.
FlatPlan plan_flat(const std::vector<NamedTensors>& groups, const FlatLayout* previous = nullptr);

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/flat_layout.ipp"
#endif
