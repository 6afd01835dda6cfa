#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "etude/data/tensors.hpp"
#include "etude/metrics/eval_prediction.hpp"

namespace etude {

/// `prediction` with all its tensors on the CPU.
inline EvalPrediction to_cpu(const EvalPrediction& prediction) {
  return {prediction.predictions.to(torch::kCPU),
          prediction.label_ids.to(torch::kCPU),
          prediction.inputs.to(torch::kCPU),
          prediction.losses.defined() ? prediction.losses.cpu() : prediction.losses,
          {}};
}

/// Joins tensors along the first dimension; where others differ, the smaller are filled up with -100 at the
/// end.
inline torch::Tensor pad_and_concatenate(std::vector<torch::Tensor> parts) {
  for (auto& part : parts)
    if (part.dim() == 0) part = part.reshape({1});
  auto widest = parts.front().sizes().vec();
  for (const auto& part : parts)
    for (std::size_t d = 1; d < widest.size(); ++d)
      widest[d] = std::max(widest[d], part.size(static_cast<std::int64_t>(d)));
  for (auto& part : parts) {
    auto shape = widest;
    shape[0] = part.size(0);
    if (part.sizes() == torch::IntArrayRef(shape)) continue;
    auto padded = torch::full(shape, -100, part.options());
    auto inside = padded;
    for (std::int64_t d = 1; d < part.dim(); ++d) inside = inside.narrow(d, 0, part.size(d));
    inside.copy_(part);
    part = padded;
  }
  return torch::cat(parts);
}

/// What an evaluation keeps of its batches. They stay where they are until there are `to_cpu_after` of them,
/// or until all are there.
class Gathered {
 public:
  Gathered(std::optional<std::int64_t> to_cpu_after, bool concatenate)
      : to_cpu_after_(to_cpu_after), concatenate_(concatenate) {}

  void add(EvalPrediction part) {
    parts_.push_back(std::move(part));
    if (to_cpu_after_ && static_cast<std::int64_t>(parts_.size() - on_cpu_) >= *to_cpu_after_) move_to_cpu();
  }

  EvalPrediction take() {
    move_to_cpu();
    EvalPrediction all;
    if (!concatenate_) {
      all.batches = std::move(parts_);
    } else if (!parts_.empty()) {
      all.predictions = join([](const auto& part) -> const Tensors& { return part.predictions; });
      all.label_ids = join([](const auto& part) -> const Tensors& { return part.label_ids; });
      all.inputs = join([](const auto& part) -> const Tensors& { return part.inputs; });
      std::vector<torch::Tensor> losses;
      for (const auto& part : parts_)
        if (part.losses.defined()) losses.push_back(part.losses);
      if (!losses.empty()) all.losses = torch::cat(losses);
    }
    return all;
  }

 private:
  void move_to_cpu() {
    for (; on_cpu_ < parts_.size(); ++on_cpu_) parts_[on_cpu_] = to_cpu(parts_[on_cpu_]);
  }

  template <class Field>
  Tensors join(Field field) const {
    Tensors joined = field(parts_.front());
    for (std::size_t i = 0; i < joined.size(); ++i) {
      std::vector<torch::Tensor> column;
      for (const auto& part : parts_) column.push_back(field(part)[i]);
      joined[i] = pad_and_concatenate(std::move(column));
    }
    return joined;
  }

  std::optional<std::int64_t> to_cpu_after_;
  bool concatenate_;
  std::vector<EvalPrediction> parts_;
  std::size_t on_cpu_ = 0;
};

}  // namespace etude
