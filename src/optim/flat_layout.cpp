#include "etude/optim/flat_layout.hpp"

#include <ATen/ops/empty_strided.h>
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
#include "etude/optim/host_stage.hpp"
#include "etude/optim/parameter_groups.hpp"

namespace etude::inline v0 {

std::vector<torch::Tensor> FlatLayout::allocate(double value) const {
  std::vector<torch::Tensor> result;
  for (const Buffer& buffer : buffers) result.push_back(at::full({buffer.size}, value, buffer.options));
  return result;
}

std::vector<torch::Tensor> FlatLayout::allocate_owned(double value, bool on_host) const {
  std::vector<torch::Tensor> result;
  for (const Buffer& buffer : buffers)
    result.push_back(at::full({buffer.size / shard.count}, value,
                              on_host ? etude::on_host(buffer.options) : buffer.options));
  return result;
}

std::vector<FlatSegment> FlatLayout::segments(std::size_t buffer, std::int64_t begin,
                                              std::int64_t end) const {
  const std::int64_t length = buffers[buffer].block;
  end = std::min(end, buffers[buffer].size);
  std::vector<FlatSegment> result;
  for (std::int64_t block = begin / length * length; block < end; block += length) {
    const std::int64_t share = std::min(length, buffers[buffer].size - block) / shard.count;
    const std::int64_t first = block + share * shard.index;
    const std::int64_t from = std::max(first, begin), to = std::min(first + share, end);
    if (from < to) result.push_back({from, to - from, block / shard.count + from - first});
  }
  return result;
}

void FlatLayout::gather(std::size_t buffer, const torch::Tensor& whole) const {
  if (!is_sharded()) return;
  const std::int64_t size = buffers[buffer].size, length = buffers[buffer].block;
  for (std::int64_t block = 0; block < size; block += length)
    shard.gather(whole.narrow(0, block, std::min(length, size - block)));
}

torch::Tensor FlatLayout::gathered(std::size_t buffer, const torch::Tensor& owned) const {
  if (!is_sharded()) return owned;
  const torch::Tensor whole = at::full({buffers[buffer].size}, 0, buffers[buffer].options);
  const torch::Tensor as_values = owned.view(whole.scalar_type());  // not every backend can send int16
  for (const auto& [begin, size, kept] : segments(buffer))
    whole.narrow(0, begin, size).copy_(as_values.narrow(0, kept, size));
  gather(buffer, whole);
  return whole.view(owned.scalar_type());
}

torch::Tensor FlatSlot::flattened(const torch::Tensor& tensor, const torch::TensorOptions& options) const {
  const bool has_order = tensor.layout() == at::kStrided && tensor.strides() == strides &&
                         tensor.scalar_type() == c10::typeMetaToScalarType(options.dtype()) &&
                         tensor.device() == options.device();
  const torch::Tensor ordered = has_order ? tensor.detach() : at::empty_strided(sizes, strides, options);
  if (!has_order)
    ordered.copy_(tensor.layout() == at::kStrided ? tensor.detach() : tensor.detach().to_dense());
  return ordered.as_strided({size}, {1});
}

const FlatSlot* FlatLayout::find(const std::string& name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &slots[found->second];
}

namespace detail {

void refuse_sparse_with_shards(const std::string& parameter) {
  throw ArgumentError(
      fmt::format("parameter '{}' has a sparse gradient, which ShardedDataParallel can't divide among the "
                  "processes: must be DistributedDataParallel, or the option sparse of its layer false",
                  parameter));
}

namespace {

void check_trainable(const std::string& name, const torch::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !at::isFloatingType(tensor.scalar_type())) {
    throw ArgumentError(fmt::format(
        "parameter '{}' is {} {}: must be dense, real and floating-point to be trained (freeze it, with "
        "requires_grad_(false))",
        name, tensor.layout() == at::kStrided ? "dense" : "sparse", c10::toString(tensor.scalar_type())));
  }
}

/// Throws for different tensors over the same memory, which the flat buffers would separate.
void check_apart(const NamedTensors& parameters) {
  std::vector<std::tuple<const char*, const char*, const std::string*>> spans;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.numel() == 0 || !tensor.is_non_overlapping_and_dense()) continue;
    const auto* begin = static_cast<const char*>(tensor.data_ptr());
    if (!begin) continue;  // a meta tensor has no memory
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

}  // namespace

}  // namespace detail

FlatPlan plan_flat(const std::vector<NamedTensors>& groups, const FlatLayout* previous,
                   const FlatShard& shard, const std::unordered_set<std::string>& sparse) {
  struct Planned {
    FlatSlot slot;
    torch::Tensor parameter;
  };
  auto layout = std::make_shared<FlatLayout>();
  layout->shard = shard;
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
      const auto in_unit = shard.unit_of.find(name);
      const auto unit = in_unit == shard.unit_of.end() ? FlatLayout::no_unit : in_unit->second;
      const FlatSlot* const before = previous ? previous->find(name) : nullptr;
      const bool is_sparse = sparse.contains(name) || (before && previous->buffers[before->buffer].is_sparse);
      if (is_sparse && layout->is_sharded()) detail::refuse_sparse_with_shards(name);
      const auto buffer = std::ranges::find_if(layout->buffers, [&](const FlatLayout::Buffer& b) {
        return !is_sparse && !b.is_sparse && b.unit == unit && b.options.dtype() == options.dtype() &&
               b.options.device() == options.device();
      });
      const auto index = static_cast<std::size_t>(buffer - layout->buffers.begin());
      if (buffer == layout->buffers.end())
        layout->buffers.push_back({.options = options, .unit = unit, .is_sparse = is_sparse});
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
  for (FlatLayout::Buffer& buffer : layout->buffers) {
    const auto element = static_cast<std::int64_t>(buffer.options.dtype().itemsize());
    const std::int64_t unit = 64 / element * shard.count;
    const auto whole_units = [&](std::int64_t elements) { return (elements + unit - 1) / unit * unit; };
    if (layout->is_sharded()) buffer.size = whole_units(buffer.size);
    // Two blocks of gradients exist in addition to the share, so they are small: large ones would use up the
    // memory that the share saves.
    const auto small_block = std::max(std::int64_t{1} << 20, buffer.size * element / (8 * shard.count));
    const auto block_bytes = shard.gradients ? std::min(shard.block_bytes, small_block) : shard.block_bytes;
    buffer.block = layout->is_sharded() ? whole_units(std::max<std::int64_t>(block_bytes / element, 1))
                                        : std::max<std::int64_t>(buffer.size, 1);
  }
  plan.layout = std::move(layout);
  return plan;
}

}  // namespace etude::inline v0

namespace etude::inline v0::detail {

std::int64_t padded(std::int64_t elements, std::int64_t element_size) {
  const std::int64_t line = 64 / element_size;
  return (elements + line - 1) / line * line;
}

}  // namespace etude::inline v0::detail
