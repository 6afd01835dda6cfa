#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "etude/base/error.hpp"
#include "etude/base/linkage.hpp"
#include "etude/data/batch.hpp"
#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

ETUDE_INLINE Batch make_batch(Tensors inputs, Tensors labels) {
  if (inputs.empty()) throw DataError("a batch must have at least one input tensor that is defined");
  const auto size = inputs[0].dim() > 0 ? inputs[0].size(0) : -1;
  const auto fits = [&](const torch::Tensor& tensor) { return tensor.dim() > 0 && tensor.size(0) == size; };
  if (std::ranges::all_of(inputs, fits) && std::ranges::all_of(labels, fits)) {
    return {std::move(inputs), std::move(labels), size};
  }
  throw DataError(
      fmt::format("every tensor's first dimension must be the number of examples; inputs: {}; labels: {}",
                  describe(inputs), describe(labels)));
}

ETUDE_INLINE Batch split_labels(Batch batch, const std::vector<std::string>& label_names) {
  if (!batch.labels.empty()) return batch;
  std::array<std::vector<torch::Tensor>, 2> tensors;
  std::array<std::vector<std::string>, 2> names;
  for (std::size_t i = 0; i < batch.inputs.names().size(); ++i) {
    const auto& name = batch.inputs.names()[i];
    const std::size_t is_label = std::ranges::count(label_names, name) > 0;
    tensors[is_label].push_back(batch.inputs[i]);
    names[is_label].push_back(name);
  }
  if (tensors[1].empty()) return batch;
  return {
      {std::move(tensors[0]), std::move(names[0])}, {std::move(tensors[1]), std::move(names[1])}, batch.size};
}

}  // namespace etude::inline v0
