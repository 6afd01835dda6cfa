#include "etude/data/batch.hpp"

#include <ATen/ops/nonzero.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <variant>

#include "etude/base/error.hpp"

namespace etude::inline v0 {

namespace detail {

torch::Tensor index_of(const torch::Tensor& tensor, const RowsByIndex& by) {
  return tensor.dim() == 1 ? tensor : tensor.select(1, by.column);
}

std::string division_fault(const torch::Tensor& tensor, const Division& division, std::int64_t size) {
  const auto rows = tensor.dim() > 0 ? tensor.size(0) : -1;
  if (std::holds_alternative<RowPerExample>(division))
    return rows == size
               ? ""
               : "its first dimension must be the number of examples, or it must say how its rows divide "
                 "(etude::RowsByIndex, RowsByLength, RowOffsets or SharedByExamples, as in "
                 "`{boxes, etude::RowsByIndex{}}` or `set_division`)";
  if (const auto* by = std::get_if<RowsByLength>(&division)) {
    const auto count = static_cast<std::int64_t>(by->lengths.size());
    const auto sum = std::accumulate(by->lengths.begin(), by->lengths.end(), std::int64_t{0});
    const bool fits =
        count == size && sum == rows && std::ranges::all_of(by->lengths, [](auto n) { return n >= 0; });
    return fits ? "" : fmt::format("its RowsByLength has {} lengths that sum to {}", count, sum);
  }
  if (const auto* by = std::get_if<RowsByIndex>(&division)) {
    const bool fits =
        tensor.dim() == 1 || (tensor.dim() > 1 && by->column >= 0 && by->column < tensor.size(1));
    return fits ? "" : fmt::format("it has no column {} for its RowsByIndex", by->column);
  }
  if (std::holds_alternative<RowOffsets>(division))
    return tensor.dim() == 1 && (rows == size || rows == size + 1)
               ? ""
               : fmt::format("its RowOffsets must be [{}] or [{}]", size, size + 1);
  return "";
}

namespace {

/// Calls `f(kind, tensors, i)` for each tensor of a batch.
template <class F>
void for_each_tensor(const Batch& batch, F f) {
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) f("input", batch.inputs, i);
  for (std::size_t i = 0; i < batch.labels.size(); ++i) f("label", batch.labels, i);
}

/// The rows of the examples [first, last) of `size`; the tensor is known to divide.
torch::Tensor rows_of_examples(const torch::Tensor& tensor, const Division& division, std::int64_t size,
                               std::int64_t first, std::int64_t last) {
  if (std::holds_alternative<SharedByExamples>(division)) return tensor;
  if (const auto* by = std::get_if<RowsByLength>(&division)) {
    const auto begin = std::accumulate(by->lengths.begin(), by->lengths.begin() + first, std::int64_t{0});
    const auto end = std::accumulate(by->lengths.begin() + first, by->lengths.begin() + last, begin);
    return tensor.slice(0, begin, end);
  }
  if (const auto* by = std::get_if<RowsByIndex>(&division)) {
    const auto index = index_of(tensor, *by);
    if (index.numel() > 0 && index.lt(0).logical_or(index.ge(size)).any().item<bool>())
      throw DataError(
          fmt::format("RowsByIndex: the examples of the rows are from {} to {}: must be from 0 to {}",
                      index.min().item<double>(), index.max().item<double>(), size - 1));
    const auto chosen = at::nonzero(index.ge(first).logical_and(index.lt(last))).flatten();
    auto rows = tensor.index_select(0, chosen);
    index_of(rows, *by).sub_(first);
    return rows;
  }
  if (std::holds_alternative<RowOffsets>(division))
    return tensor.slice(0, first, last + tensor.size(0) - size) - tensor[first];
  return tensor.slice(0, first, last);
}

Tensors of_examples(const Tensors& all, std::int64_t size, std::int64_t first, std::int64_t last) {
  std::size_t i = 0;
  auto part = all.transform([&](const torch::Tensor& tensor) {
    return rows_of_examples(tensor, all.division(i++), size, first, last);
  });
  for (i = 0; i < all.size(); ++i)
    if (const auto* by = std::get_if<RowsByLength>(&all.division(i)))
      part.set_division(i, RowsByLength{{by->lengths.begin() + first, by->lengths.begin() + last}});
  return part;
}

}  // namespace

void throw_indivisible(std::string_view reason, std::string_view kind, const Tensors& tensors, std::size_t i,
                       std::int64_t size, std::string_view fault) {
  throw DataError(fmt::format("{}{} {} is {} in a batch of {} examples: {}", reason, kind, tensors.title(i),
                              describe(tensors[i]), size, fault));
}

void check_row_per_example(const Batch& batch, std::string_view reason) {
  for_each_tensor(batch, [&](std::string_view kind, const Tensors& tensors, std::size_t i) {
    if (!tensors.is_row_per_example(i) || tensors[i].dim() == 0 || tensors[i].size(0) != batch.size)
      throw_indivisible(reason, kind, tensors, i, batch.size, "must have one row for each example");
  });
}

}  // namespace detail

void Batch::check_divisible(std::string_view reason) const {
  detail::for_each_tensor(*this, [&](std::string_view kind, const Tensors& tensors, std::size_t i) {
    if (const auto fault = detail::division_fault(tensors[i], tensors.division(i), size); !fault.empty())
      detail::throw_indivisible(reason, kind, tensors, i, size, fault);
  });
}

Batch Batch::slice(std::int64_t first, std::int64_t last) const {
  check_divisible("a batch is divided, and its ");
  if (first == 0 && last == size) return *this;
  return {detail::of_examples(inputs, size, first, last), detail::of_examples(labels, size, first, last),
          last - first};
}

Batch make_batch(Tensors inputs, Tensors labels) {
  if (inputs.empty()) throw DataError("a batch must have at least one input tensor that is defined");
  Batch batch{std::move(inputs), std::move(labels), -1};
  detail::for_each_tensor(batch, [&](std::string_view, const Tensors& tensors, std::size_t i) {
    if (batch.size >= 0) return;
    if (const auto* by = std::get_if<RowsByLength>(&tensors.division(i)))
      batch.size = static_cast<std::int64_t>(by->lengths.size());
    else if (tensors.is_row_per_example(i) && tensors[i].dim() > 0)
      batch.size = tensors[i].size(0);
  });
  if (batch.size < 0)
    throw DataError(
        fmt::format("no tensor says how many examples there are: one must have a row for each, or say "
                    "etude::RowsByLength; "
                    "inputs: {}; labels: {}",
                    describe(batch.inputs), describe(batch.labels)));
  bool fits = true;
  detail::for_each_tensor(batch, [&](std::string_view, const Tensors& tensors, std::size_t i) {
    if (tensors.is_row_per_example(i) && (tensors[i].dim() == 0 || tensors[i].size(0) != batch.size))
      fits = false;
  });
  if (!fits)
    throw DataError(fmt::format(
        "every tensor's first dimension must be the number of examples, unless it says how its rows divide "
        "(etude::RowsByIndex and others); inputs: {}; labels: {}",
        describe(batch.inputs), describe(batch.labels)));
  batch.check_divisible("");
  return batch;
}

Batch split_labels(Batch batch, const std::vector<std::string>& label_names) {
  if (!batch.labels.empty()) return batch;
  std::array<std::vector<std::size_t>, 2> places;
  for (std::size_t i = 0; i < batch.inputs.names().size(); ++i)
    places[std::ranges::count(label_names, batch.inputs.names()[i]) > 0].push_back(i);
  if (places[1].empty()) return batch;
  return {batch.inputs.at_positions(places[0]), batch.inputs.at_positions(places[1]), batch.size};
}

}  // namespace etude::inline v0
