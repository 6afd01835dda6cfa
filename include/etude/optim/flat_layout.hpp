#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "etude/base/linkage.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude {

/// Where one parameter lies in the flat buffers. Offset and sizes count elements.
struct FlatSlot {
  std::string name;
  std::size_t group = 0;
  std::size_t buffer = 0;
  std::int64_t offset = 0;
  std::int64_t size = 0;  ///< without the padding that follows it
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

  /// The parameter's part of a buffer, in its shape.
  torch::Tensor view(const torch::Tensor& buffer_tensor) const {
    return buffer_tensor.as_strided(sizes, strides, offset);
  }
};

/// The plan of the flat buffers: one for each device and dtype, in it the groups one after the other.
struct FlatLayout {
  struct Buffer {
    torch::TensorOptions options;
    std::int64_t size = 0;
  };

  std::vector<FlatSlot> slots;  ///< in the order of memory
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Buffer> buffers;

  std::vector<torch::Tensor> allocate(double value = 0) const;

  /// Null if there is none of that name.
  const FlatSlot* find(const std::string& name) const;
};

namespace detail {

/// Every parameter starts on a cache line, for the kernels that like aligned memory.
inline std::int64_t padded(std::int64_t elements, std::int64_t element_size) {
  const std::int64_t line = 64 / element_size;
  return (elements + line - 1) / line * line;
}

}  // namespace detail

/// A plan for the parameters, with the parameters in its order.
struct FlatPlan {
  std::shared_ptr<const FlatLayout> layout;
  std::vector<torch::Tensor> parameters;  ///< one for each slot
  NamedTensors frozen;                    ///< left out, since they require no gradient
};

/// Plans buffers for the parameters that require gradients or had a place in `previous`. A tied parameter
/// (one tensor, several names) stands once, under its first name. Dense strides (channels last) are kept,
/// others become contiguous. Throws ArgumentError for parameters that can't be trained, that overlap in
/// memory, or that share a name.
FlatPlan plan_flat(const std::vector<NamedTensors>& groups, const FlatLayout* previous = nullptr);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/optim/impl/flat_layout.ipp"
#endif
