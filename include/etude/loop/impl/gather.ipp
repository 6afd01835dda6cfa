#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/data/tensors.hpp"
#include "etude/loop/gather.hpp"
#include "etude/metrics/eval_prediction.hpp"

namespace etude::inline v0 {

ETUDE_INLINE EvalPrediction to_cpu(const EvalPrediction& prediction) {
  return {prediction.predictions.to(torch::kCPU),
          prediction.label_ids.to(torch::kCPU),
          prediction.inputs.to(torch::kCPU),
          prediction.losses.defined() ? prediction.losses.cpu() : prediction.losses,
          {}};
}

namespace detail {

/// A tensor without dimensions is one row.
inline torch::Tensor with_rows(const torch::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.reshape({1}) : tensor;
}

/// The tensors of a prediction, one after another.
inline std::vector<torch::Tensor> columns_of(const EvalPrediction& prediction) {
  std::vector<torch::Tensor> columns;
  for (const auto* tensors : {&prediction.predictions, &prediction.label_ids, &prediction.inputs})
    for (const auto& tensor : *tensors) columns.push_back(with_rows(tensor));
  if (prediction.losses.defined()) columns.push_back(prediction.losses);
  return columns;
}

/// The places, in the tensors of all processes laid one after another, each with room for `most` rows, of the
/// rows in the order of the batches.
inline torch::Tensor places_in_order(const std::vector<std::vector<std::int64_t>>& rows, std::int64_t most) {
  std::vector<std::int64_t> places, next(rows.size());
  std::size_t batches = 0;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    next[rank] = static_cast<std::int64_t>(rank) * most;
    batches = std::max(batches, rows[rank].size());
  }
  for (std::size_t batch = 0; batch < batches; ++batch)
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
      if (batch < rows[rank].size())
        for (std::int64_t row = 0; row < rows[rank][batch]; ++row) places.push_back(next[rank]++);
  return torch::tensor(places, torch::kLong);
}

/// One tensor of all processes, its rows in order; `headers` describe it as `gather_rows` does.
inline torch::Tensor gather_column(Communicator& communicator, const torch::Tensor& own,
                                   const std::vector<nlohmann::json>& headers, std::size_t column) {
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<std::int64_t> sizes;
  auto dtype = own.scalar_type();
  bool is_by_example = true;
  for (const auto& header : headers) {
    const auto& of = header["columns"][column];
    const auto here = of["sizes"].get<std::vector<std::int64_t>>();
    if (sizes.empty()) sizes = here;
    if (here.size() != sizes.size())
      throw DataError(fmt::format("the processes have predictions with {} and with {} dimensions",
                                  sizes.size(), here.size()));
    for (std::size_t d = 0; d < sizes.size(); ++d) sizes[d] = std::max(sizes[d], here[d]);
    dtype = c10::promoteTypes(dtype, static_cast<torch::ScalarType>(of["dtype"].get<int>()));
    rows.push_back(header["rows"].get<std::vector<std::int64_t>>());
    is_by_example =
        is_by_example && here[0] == std::accumulate(rows.back().begin(), rows.back().end(), std::int64_t{0});
  }
  if (!is_by_example)  // one value for each batch
    for (std::size_t rank = 0; rank < rows.size(); ++rank)
      rows[rank].assign(
          static_cast<std::size_t>(headers[rank]["columns"][column]["sizes"][0].get<std::int64_t>()), 1);
  const bool is_whole = own.sizes() == torch::IntArrayRef(sizes) && own.scalar_type() == dtype;
  auto padded = is_whole ? own.contiguous() : torch::full(sizes, -100, torch::dtype(dtype));
  if (!is_whole) {
    auto place = padded;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      place = place.narrow(static_cast<std::int64_t>(d), 0, own.size(static_cast<std::int64_t>(d)));
    place.copy_(own);
  }
  if (padded.numel() == 0) return padded;
  const auto most = sizes[0];
  sizes[0] *= communicator.world_size();
  // As bytes, since not every backend knows every dtype.
  const auto all =
      communicator.gather(padded.view({-1}).view(torch::kByte)).view({-1}).view(dtype).view(sizes);
  return all.index_select(0, places_in_order(rows, most));
}

}  // namespace detail

ETUDE_INLINE EvalPrediction gather_rows(Communicator& communicator, const EvalPrediction& own,
                                        const std::vector<std::int64_t>& rows) {
  if (!own.batches.empty()) {
    auto result = own;
    for (std::size_t i = 0; i < own.batches.size(); ++i)
      result.batches[i] = gather_rows(communicator, own.batches[i], {rows[i]});
    return result;
  }
  const auto columns = detail::columns_of(own);
  nlohmann::json header{{"rows", rows}, {"columns", nlohmann::json::array()}};
  for (const auto& column : columns)
    header["columns"].push_back(
        {{"sizes", column.sizes().vec()}, {"dtype", static_cast<int>(column.scalar_type())}});
  std::vector<nlohmann::json> headers;
  for (const auto& text : communicator.gather_bytes(header.dump()))
    headers.push_back(nlohmann::json::parse(text));
  for (const auto& other : headers)
    if (other["columns"].size() != columns.size())
      throw DataError(fmt::format("the processes have predictions of {} and of {} tensors", columns.size(),
                                  other["columns"].size()));
  std::size_t column = 0;
  const auto gather = [&](const torch::Tensor& tensor) {
    return detail::gather_column(communicator, detail::with_rows(tensor), headers, column++);
  };
  EvalPrediction all;
  all.predictions = own.predictions.transform(gather);
  all.label_ids = own.label_ids.transform(gather);
  all.inputs = own.inputs.transform(gather);
  if (own.losses.defined()) all.losses = gather(own.losses);
  return all;
}

ETUDE_INLINE void GatheredTensor::add(const torch::Tensor& part) {
  const auto rows = part.dim() == 0 ? part.reshape({1}) : part;
  const auto count = rows.size(0);
  if (!all_.defined()) {
    auto sizes = rows.sizes().vec();
    sizes[0] = std::max(count, expected_);
    all_ = torch::empty(sizes, torch::dtype(rows.scalar_type()));
  }
  make_room_for(rows);
  auto place = all_.narrow(0, used_, count);
  if (place.sizes() != rows.sizes()) place.fill_(-100);
  corner(place, rows).copy_(rows);
  used_ += count;
}

ETUDE_INLINE torch::Tensor GatheredTensor::take() const {
  return all_.defined() && used_ < all_.size(0) ? all_.narrow(0, 0, used_) : all_;
}

ETUDE_INLINE torch::Tensor GatheredTensor::corner(torch::Tensor whole, const torch::Tensor& part) {
  for (std::int64_t d = 1; d < part.dim(); ++d)
    if (whole.size(d) != part.size(d)) whole = whole.narrow(d, 0, part.size(d));
  return whole;
}

ETUDE_INLINE void GatheredTensor::make_room_for(const torch::Tensor& rows) {
  if (rows.dim() != all_.dim())
    throw DataError(fmt::format("batches must all have the same number of dimensions, not {} and then {}",
                                etude::describe(all_), etude::describe(rows)));
  auto sizes = all_.sizes().vec();
  if (used_ + rows.size(0) > sizes[0]) sizes[0] = std::max(used_ + rows.size(0), sizes[0] + sizes[0] / 2);
  for (std::size_t d = 1; d < sizes.size(); ++d)
    sizes[d] = std::max(sizes[d], rows.size(static_cast<std::int64_t>(d)));
  const auto dtype = c10::promoteTypes(all_.scalar_type(), rows.scalar_type());
  if (all_.sizes() == torch::IntArrayRef(sizes) && all_.scalar_type() == dtype) return;
  const auto before = all_.narrow(0, 0, used_);
  all_ = torch::empty(sizes, torch::dtype(dtype));
  auto place = all_.narrow(0, 0, used_);
  if (place.sizes() != before.sizes()) place.fill_(-100);
  corner(place, before).copy_(before);
}

ETUDE_INLINE Gathered::Gathered(std::optional<std::int64_t> to_cpu_after, bool concatenate,
                                std::optional<std::int64_t> examples)
    : to_cpu_after_(to_cpu_after), concatenate_(concatenate), examples_(examples.value_or(0)) {}

ETUDE_INLINE void Gathered::GatheredTensors::add(const Tensors& part, std::int64_t size,
                                                 std::int64_t examples) {
  if (columns.empty()) first = part;
  if (part.size() != first.size())
    throw DataError(fmt::format("batches must all have the same number of tensors, not {} and then {}",
                                first.size(), part.size()));
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (i == columns.size())
      columns.emplace_back(part[i].dim() > 0 && part[i].size(0) == size ? examples : 0);
    columns[i].add(part[i]);
  }
}

ETUDE_INLINE Tensors Gathered::GatheredTensors::take() {
  auto all = std::exchange(first, {});
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = columns[i].take();
  columns.clear();
  return all;
}

ETUDE_INLINE void Gathered::add(EvalPrediction part, std::int64_t size) {
  const bool on_cpu = part.predictions.empty() || part.predictions[0].is_cpu();
  waiting_.emplace_back(std::move(part), size);
  if (on_cpu || (to_cpu_after_ && static_cast<std::int64_t>(waiting_.size()) >= *to_cpu_after_)) take_in();
}

ETUDE_INLINE EvalPrediction Gathered::take() {
  take_in();
  EvalPrediction all;
  all.predictions = predictions_.take();
  all.label_ids = label_ids_.take();
  all.inputs = inputs_.take();
  all.losses = losses_.take();
  all.batches = std::move(batches_);
  return all;
}

ETUDE_INLINE void Gathered::take_in() {
  for (auto& [part, size] : std::exchange(waiting_, {})) {
    if (!concatenate_) {
      batches_.push_back(to_cpu(part));
      continue;
    }
    predictions_.add(part.predictions, size, examples_);
    label_ids_.add(part.label_ids, size, examples_);
    inputs_.add(part.inputs, size, examples_);
    if (part.losses.defined()) losses_.add(part.losses);
  }
}

}  // namespace etude::inline v0
