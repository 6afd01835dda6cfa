#include "etude/parallel/sum_of_sparse.hpp"

#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "etude/base/error.hpp"

namespace etude::inline v0 {
namespace detail {

namespace {

/// The shape of one gradient in one process.
struct SparseShape {
  std::int64_t exists = 0, rows = 0, dimensions = 0;

  std::int64_t bytes_of_indices() const {
    return rows * dimensions * static_cast<std::int64_t>(sizeof(std::int64_t));
  }
};

torch::Tensor as_bytes(const torch::Tensor& tensor) { return tensor.contiguous().view({-1}).view(at::kByte); }

/// Sums one gradient over all processes, which have these shapes. `own` may be undefined.
torch::Tensor sum_of_sparse(Communicator& communicator, const torch::Tensor& own,
                            const torch::Tensor& parameter, const std::vector<SparseShape>& shapes) {
  const auto largest =
      *std::ranges::max_element(shapes, {}, [](const SparseShape& shape) { return shape.dimensions; });
  if (largest.exists == 0) return {};
  for (const auto& shape : shapes)
    if (shape.exists != 0 && shape.dimensions != largest.dimensions)
      throw DataError(fmt::format(
          "a gradient has {} sparse dimensions in one process and {} in another: must be the same in all",
          shape.dimensions, largest.dimensions));
  auto sizes_of_values = parameter.sizes().slice(static_cast<std::size_t>(largest.dimensions)).vec();
  std::int64_t bytes_of_row = static_cast<std::int64_t>(parameter.element_size());
  for (const auto size : sizes_of_values) bytes_of_row *= size;
  sizes_of_values.insert(sizes_of_values.begin(), 0);

  std::int64_t length = 0;
  for (const auto& shape : shapes)
    length = std::max(length, shape.bytes_of_indices() + shape.rows * bytes_of_row);
  length = (length + 7) / 8 * 8;  // aligns the indices
  const auto packed = at::zeros({length}, parameter.options().dtype(at::kByte).requires_grad(false));
  const auto& shape = shapes[static_cast<std::size_t>(communicator.rank())];
  if (shape.rows > 0) {
    packed.narrow(0, 0, shape.bytes_of_indices()).copy_(as_bytes(own._indices()));
    packed.narrow(0, shape.bytes_of_indices(), shape.rows * bytes_of_row).copy_(as_bytes(own._values()));
  }
  const auto all = communicator.gather(packed);

  std::vector<torch::Tensor> indices, values;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    const auto& there = shapes[rank];
    if (there.exists == 0) continue;
    const auto bytes = all[static_cast<std::int64_t>(rank)];
    indices.push_back(
        bytes.narrow(0, 0, there.bytes_of_indices()).view(at::kLong).view({there.dimensions, there.rows}));
    sizes_of_values[0] = there.rows;
    values.push_back(bytes.narrow(0, there.bytes_of_indices(), there.rows * bytes_of_row)
                         .view(parameter.scalar_type())
                         .view(sizes_of_values));
  }
  return at::_sparse_coo_tensor_unsafe(at::cat(indices, 1), at::cat(values), parameter.sizes(),
                                       values.front().options().layout(at::kSparse))
      .coalesce();
}

}  // namespace

}  // namespace detail

std::vector<torch::Tensor> sums_of_sparse(Communicator& communicator,
                                          const std::vector<torch::Tensor>& gradients,
                                          const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t numbers = 3;
  const auto count = static_cast<std::int64_t>(gradients.size());
  std::vector<torch::Tensor> own;
  const auto shapes = at::zeros({count, numbers}, at::kLong);
  auto* number = shapes.data_ptr<std::int64_t>();
  for (const auto& gradient : gradients) {
    const bool is_dense = gradient.defined() && !gradient.is_sparse();
    const auto& sparse = own.emplace_back(is_dense ? gradient.to_sparse(1) : gradient);
    *number++ = sparse.defined() ? 1 : 0;
    *number++ = sparse.defined() ? sparse._nnz() : 0;
    *number++ = sparse.defined() ? sparse.sparse_dim() : 0;
  }
  const auto all = communicator.gather(shapes).contiguous();
  std::vector<torch::Tensor> result;
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<detail::SparseShape> of_one;
    for (std::int64_t rank = 0; rank < communicator.world_size(); ++rank) {
      const auto* shape = all.data_ptr<std::int64_t>() + (rank * count + i) * numbers;
      of_one.push_back({shape[0], shape[1], shape[2]});
    }
    const auto at = static_cast<std::size_t>(i);
    result.push_back(detail::sum_of_sparse(communicator, own[at], parameters[at], of_one));
  }
  return result;
}

}  // namespace etude::inline v0
