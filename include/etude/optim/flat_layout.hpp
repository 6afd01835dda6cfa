#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "etude/optim/parameter_groups.hpp"

namespace etude::inline v0 {

/// The place of one parameter in the flat buffers. Offsets and sizes are in elements.
struct FlatSlot {
  std::string name;
  std::size_t group = 0;
  std::size_t buffer = 0;
  std::int64_t offset = 0;
  std::int64_t size = 0;  ///< without the padding that follows
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

  /// The parameter's part of a buffer, with its shape.
  torch::Tensor view(const torch::Tensor& buffer_tensor) const {
    return buffer_tensor.as_strided(sizes, strides, offset);
  }

  /// The elements of a tensor that has the parameter's shape, in the order of the buffer.
  torch::Tensor flattened(const torch::Tensor& tensor, const torch::TensorOptions& options) const;
};

/// One of several equal shares of the flat buffers, for an optimizer that updates only its share. Shares cut
/// through parameters: each block of a buffer is divided evenly, so that blocks can be sent one after
/// another.
struct FlatShard {
  std::int64_t index = 0;
  std::int64_t count = 1;
  /// The size of a block, which is rounded up to a multiple of 64 * count. With `gradients`, small buffers
  /// get smaller blocks.
  std::int64_t block_bytes = std::int64_t{25} << 20;
  bool gradients = false;  ///< true if the other shares of the gradients aren't kept either
  /// Maps parameter names to units. Only this share of these parameters' values is kept between uses.
  std::unordered_map<std::string, std::size_t> unit_of = {};
  /// Completes a block in place: takes each share from its owner. All owners call it in the same order.
  std::function<void(const torch::Tensor&)> gather = nullptr;
  /// Sums a tensor over all owners, in place.
  std::function<void(const torch::Tensor&)> sum = nullptr;
};

/// The owned part of one block of a buffer, in elements.
struct FlatSegment {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t kept = 0;  ///< its offset in a tensor that holds only the owned share
};

/// The layout of the flat buffers: one buffer per device, dtype and unit, with the groups one after another,
/// and another buffer for each parameter whose gradients are sparse.
struct FlatLayout {
  static constexpr std::size_t no_unit = std::numeric_limits<std::size_t>::max();

  struct Buffer {
    torch::TensorOptions options;
    std::size_t unit = no_unit;
    std::int64_t size = 0;
    std::int64_t block = 1;  ///< elements in a block, which is divided evenly; the last block may be shorter
    bool is_sparse = false;  ///< true if it holds a single parameter whose gradients aren't flat
  };

  FlatShard shard;

  std::vector<FlatSlot> slots;  ///< in memory order
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Buffer> buffers;

  std::vector<torch::Tensor> allocate(double value = 0) const;

  bool is_sharded() const { return shard.count > 1; }

  /// Like `allocate`, but only for the owned share. With `on_host`, uses CPU memory suited for copies to the
  /// buffer's device.
  std::vector<torch::Tensor> allocate_owned(double value = 0, bool on_host = false) const;

  /// The owned segments of a buffer in [begin, end).
  std::vector<FlatSegment> segments(std::size_t buffer, std::int64_t begin = 0,
                                    std::int64_t end = std::numeric_limits<std::int64_t>::max()) const;

  /// Takes the other shares of a buffer from their owners, in place.
  void gather(std::size_t buffer, const torch::Tensor& whole) const;

  /// Joins the owned shares of all processes into the whole buffer.
  torch::Tensor gathered(std::size_t buffer, const torch::Tensor& owned) const;

  /// The slot of that name, or null.
  const FlatSlot* find(const std::string& name) const;
};

namespace detail {

/// Rounds a size up to whole cache lines, so that every parameter is aligned for the kernels.
std::int64_t padded(std::int64_t elements, std::int64_t element_size);

}  // namespace detail

namespace detail {
/// Throws ArgumentError: shards can't divide a parameter whose gradient is sparse.
[[noreturn]] void refuse_sparse_with_shards(const std::string& parameter);
}  // namespace detail

/// A layout and the parameters in its order.
struct FlatPlan {
  std::shared_ptr<const FlatLayout> layout;
  std::vector<torch::Tensor> parameters;  ///< one per slot
  NamedTensors frozen;                    ///< not in the layout, since they don't require gradients
};

/// Lays out buffers for the parameters that require gradients or had a slot in `previous`. A tied parameter
/// (one tensor with several names) appears once, under its first name. Dense strides (such as channels last)
/// are kept; other tensors become contiguous. Throws ArgumentError for parameters that can't be trained,
/// overlap in memory, or share a name. With shards, buffers are padded so that each share is a multiple of 64
/// bytes. Each parameter named in `sparse`, or sparse in `previous`, gets a separate buffer. With shards,
/// which can't divide such a parameter, this throws ArgumentError.
FlatPlan plan_flat(const std::vector<NamedTensors>& groups, const FlatLayout* previous = nullptr,
                   const FlatShard& shard = {}, const std::unordered_set<std::string>& sparse = {});

}  // namespace etude::inline v0
