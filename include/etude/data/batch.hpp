#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

/// One example: tensors without a batch dimension. Unlabeled data has no labels.
struct Example {
  Tensors inputs;
  Tensors labels;
};

/// The input of one model step: tensors whose first dimension is the number of examples.
struct Batch {
  Tensors inputs;
  Tensors labels;
  std::int64_t size = 0;  ///< number of examples

  /// The examples in [first, last), sharing memory.
  Batch slice(std::int64_t first, std::int64_t last) const {
    const auto rows = [&](const torch::Tensor& tensor) { return tensor.slice(0, first, last); };
    return {inputs.transform(rows), labels.transform(rows), last - first};
  }

  Batch to(torch::Device device, bool non_blocking = false) const {
    return {inputs.to(device, non_blocking), labels.to(device, non_blocking), size};
  }
};

/// A batch of `inputs` and `labels` whose size is their first dimension. Throws DataError if there are no
/// inputs, or if a tensor has no first dimension or one of a different size.
Batch make_batch(Tensors inputs, Tensors labels);

/// Moves the inputs with these names to the batch's labels, in this order; unchanged if it already has
/// labels.
Batch split_labels(Batch batch, const std::vector<std::string>& label_names);

}  // namespace etude::inline v0

#ifndef ETUDE_COMPILED
#include "etude/data/impl/batch.ipp"
#endif
