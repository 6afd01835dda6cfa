#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "etude/data/tensors.hpp"
#include "etude/error.hpp"

namespace etude {

/// One example: tensors without a batch dimension. Unlabelled data has no labels.
struct Example {
  Tensors inputs;
  Tensors labels;
};

/// What one step of the model sees: tensors whose first dimension counts the examples.
struct Batch {
  Tensors inputs;
  Tensors labels;
  std::int64_t size = 0;  ///< examples

  Batch to(torch::Device device, bool non_blocking = false) const {
    return {inputs.to(device, non_blocking), labels.to(device, non_blocking), size};
  }
};

/// A batch of `inputs` and `labels` whose size is their first dimension. Throws DataError when there are no
/// inputs, or one of the tensors has no first dimension or another size there.
inline Batch make_batch(Tensors inputs, Tensors labels) {
  if (inputs.empty()) throw DataError("there are no inputs");
  const auto size = inputs[0].dim() > 0 ? inputs[0].size(0) : -1;
  const auto fits = [&](const torch::Tensor& tensor) { return tensor.dim() > 0 && tensor.size(0) == size; };
  if (std::ranges::all_of(inputs, fits) && std::ranges::all_of(labels, fits)) {
    return {std::move(inputs), std::move(labels), size};
  }
  throw DataError(
      fmt::format("every tensor's first dimension must be the number of examples; inputs: {}; labels: {}",
                  describe(inputs), describe(labels)));
}

}  // namespace etude
