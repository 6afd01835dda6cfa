#include "tensors.hpp"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <etude/data/tensors.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "etude/base/error.hpp"

namespace etude::inline v0::c {

namespace {

struct Dtype {
  std::int32_t here;
  torch::ScalarType there;
};

constexpr std::array<Dtype, 10> dtypes{{{ETUDE_FLOAT32, torch::kFloat},
                                        {ETUDE_FLOAT64, torch::kDouble},
                                        {ETUDE_FLOAT16, torch::kHalf},
                                        {ETUDE_BFLOAT16, torch::kBFloat16},
                                        {ETUDE_INT8, torch::kChar},
                                        {ETUDE_INT16, torch::kShort},
                                        {ETUDE_INT32, torch::kInt},
                                        {ETUDE_INT64, torch::kLong},
                                        {ETUDE_UINT8, torch::kByte},
                                        {ETUDE_BOOL, torch::kBool}}};

torch::ScalarType dtype_of(const etude_tensor& tensor, const std::string& title) {
  for (const auto& [here, there] : dtypes)
    if (here == tensor.dtype) return there;
  throw DataError(fmt::format("{} has the dtype {}: must be one of ETUDE_FLOAT32 (0) to ETUDE_BOOL (9)",
                              title, tensor.dtype));
}

torch::Device device_of(const etude_tensor& tensor, const std::string& title) {
  if (tensor.device_type == ETUDE_CPU) return torch::kCPU;
  if (tensor.device_type != ETUDE_CUDA)
    throw DataError(fmt::format("{} has the device_type {}: must be ETUDE_CPU (0) or ETUDE_CUDA (1)", title,
                                tensor.device_type));
  const auto count = static_cast<std::int64_t>(torch::cuda::device_count());
  if (tensor.device_index < 0 || tensor.device_index >= count)
    throw DataError(fmt::format("{} is on GPU {}, but this process has {}", title, tensor.device_index,
                                count == 0   ? std::string("no GPU")
                                : count == 1 ? std::string("only GPU 0")
                                             : fmt::format("GPUs 0 to {}", count - 1)));
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(tensor.device_index)};
}

/// Throws DataError for sizes and strides that can't be those of memory.
void check_shape(const etude_tensor& tensor, const std::string& title) {
  constexpr std::int32_t largest_rank = 64;
  constexpr auto largest = std::numeric_limits<std::int64_t>::max() / 16;
  if (tensor.rank < 0 || tensor.rank > largest_rank)
    throw DataError(
        fmt::format("{} has the rank {}: must be from 0 to {}", title, tensor.rank, largest_rank));
  if (tensor.rank > 0 && !tensor.shape) throw DataError(title + " has no shape: it is null");
  std::int64_t elements = 1, extent = 1;
  for (std::int32_t i = 0; i < tensor.rank; ++i) {
    const auto size = tensor.shape[i];
    const auto stride = tensor.strides ? tensor.strides[i] : 0;
    if (size < 0) throw DataError(fmt::format("{} has the size {}: must be at least 0", title, size));
    if (stride < 0) throw DataError(fmt::format("{} has the stride {}: must be at least 0", title, stride));
    if (size > 0 && (elements > largest / size || (stride > 0 && size - 1 > (largest - extent) / stride)))
      throw DataError(fmt::format("{} has sizes or strides that are too large for memory", title));
    elements *= size;
    extent += size > 0 ? (size - 1) * stride : 0;
  }
  if (elements > 0 && !tensor.data) throw DataError(title + " has no data: it is null");
}

}  // namespace

torch::Tensor view_of(const etude_tensor& tensor, const std::string& title) {
  const auto options = torch::TensorOptions().dtype(dtype_of(tensor, title)).device(device_of(tensor, title));
  check_shape(tensor, title);
  const torch::IntArrayRef sizes(tensor.shape, static_cast<std::size_t>(tensor.rank));
  if (!tensor.strides) return torch::from_blob(tensor.data, sizes, options);
  const torch::IntArrayRef strides(tensor.strides, static_cast<std::size_t>(tensor.rank));
  return torch::from_blob(tensor.data, sizes, strides, options);
}

torch::Tensor writable_view_of(const etude_tensor& tensor, const std::string& title) {
  auto view = view_of(tensor, title);
  if (at::has_internal_overlap(view) == at::MemOverlap::Yes)
    throw DataError(title + " has the stride 0: must have memory for each element");
  return view;
}

etude_tensor described(const torch::Tensor& tensor, const char* name) {
  etude_tensor result{};
  result.name = name;
  result.data = tensor.data_ptr();
  result.shape = tensor.sizes().data();
  result.strides = tensor.strides().data();
  result.rank = static_cast<std::int32_t>(tensor.dim());
  const auto* const dtype = std::ranges::find(dtypes, tensor.scalar_type(), &Dtype::there);
  if (dtype == dtypes.end())
    throw DataError(fmt::format("{} is {}, a type that an etude_tensor can't have",
                                name ? name : "the tensor", describe(tensor)));
  result.dtype = dtype->here;
  result.device_type = tensor.is_cuda() ? ETUDE_CUDA : ETUDE_CPU;
  result.device_index = tensor.is_cuda() ? static_cast<std::int32_t>(tensor.get_device()) : 0;
  return result;
}

bool is_view_of(const torch::Tensor& view, const etude_tensor& tensor) {
  if (view.data_ptr() != tensor.data) return false;  // converted, perhaps to a type that described() refuses
  const auto ours = described(view, nullptr);
  if (ours.dtype != tensor.dtype || ours.device_type != tensor.device_type || ours.rank != tensor.rank ||
      (ours.device_type != ETUDE_CPU && ours.device_index != tensor.device_index) ||
      (ours.rank > 0 && !tensor.shape))
    return false;
  std::int64_t contiguous = 1;
  for (auto i = ours.rank - 1; i >= 0; --i) {
    const auto stride = tensor.strides ? tensor.strides[i] : contiguous;
    if (ours.shape[i] != tensor.shape[i] || ours.strides[i] != stride) return false;
    contiguous *= std::max<std::int64_t>(ours.shape[i], 1);
  }
  return true;
}

}  // namespace etude::inline v0::c
