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

  /// The elements of a tensor of the parameter's shape, in the order in which they lie in a buffer.
  torch::Tensor flattened(const torch::Tensor& tensor, const torch::TensorOptions& options) const;
};

/// One of equal shares of the flat buffers, for an optimizer that updates its share only. Shares cut through
/// parameters: each block of a buffer is divided evenly, so that one block after another can be sent.
struct FlatShard {
  std::int64_t index = 0;
  std::int64_t count = 1;
  /// Rounded up to a multiple of 64 * count; smaller with `gradients` if the buffer is.
  std::int64_t block_bytes = std::int64_t{25} << 20;
  bool gradients = false;  ///< whether gradients outside of it aren't kept either
  /// The units of parameters, by name, whose values outside of it aren't kept between uses either.
  std::unordered_map<std::string, std::size_t> unit_of = {};
  /// Gets a block, in place: takes each share from its owner. All owners call it in the same order.
  std::function<void(const torch::Tensor&)> gather = nullptr;
  /// Sums a tensor over all owners, in place.
  std::function<void(const torch::Tensor&)> sum = nullptr;
};

/// The owned part of one block of a buffer, in elements.
struct FlatSegment {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t kept = 0;  ///< its place in a tensor that holds the owned share only
};

/// The layout of the flat buffers: one buffer per device, dtype and unit, with the groups one after another,
/// and one for each parameter whose gradients are sparse.
struct FlatLayout {
  static constexpr std::size_t no_unit = std::numeric_limits<std::size_t>::max();

  struct Buffer {
    torch::TensorOptions options;
    std::size_t unit = no_unit;
    std::int64_t size = 0;
    std::int64_t block = 1;  ///< the elements that are divided at a time; the last block may be shorter
    bool is_sparse = false;  ///< holds one parameter only, and its gradients aren't flat
  };

  FlatShard shard;

  std::vector<FlatSlot> slots;  ///< in memory order
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<Buffer> buffers;

  std::vector<torch::Tensor> allocate(double value = 0) const;

  bool is_sharded() const { return shard.count > 1; }

  /// As `allocate`, for the owned share only; `on_host`: in the memory of the CPU, for copies to the buffer's
  /// device.
  std::vector<torch::Tensor> allocate_owned(double value = 0, bool on_host = false) const;

  /// The owned segments of a buffer between two of its elements.
  std::vector<FlatSegment> segments(std::size_t buffer, std::int64_t begin = 0,
                                    std::int64_t end = std::numeric_limits<std::int64_t>::max()) const;

  /// Takes the other shares of a buffer from their owners, in place.
  void gather(std::size_t buffer, const torch::Tensor& whole) const;

  /// The whole buffer, of which each process has the owned share.
  torch::Tensor gathered(std::size_t buffer, const torch::Tensor& owned) const;

  /// Null if no slot has that name.
  const FlatSlot* find(const std::string& name) const;
};

namespace detail {

/// Aligns every parameter to a cache line, for kernels that prefer aligned memory.
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
  NamedTensors frozen;                    ///< left out: they don't require gradients
};

/// Lays out buffers for the parameters that require gradients or had a slot in `previous`. A tied parameter
/// (one tensor with several names) appears once, under its first name. Dense strides (channels last) are
/// kept, others become contiguous. Throws ArgumentError for parameters that can't be trained, overlap in
/// memory, or share a name. With shards, buffers are padded so that each share is a multiple of 64 bytes.
/// The parameters named in `sparse`, or sparse in `previous`, get a buffer each; throws ArgumentError for
/// them with shards, which can't divide them.
FlatPlan plan_flat(const std::vector<NamedTensors>& groups, const FlatLayout* previous = nullptr,
                   const FlatShard& shard = {}, const std::unordered_set<std::string>& sparse = {});

}  // namespace etude::inline v0
