#pragma once

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
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
