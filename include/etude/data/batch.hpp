#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "etude/data/tensors.hpp"

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

  /// The examples from `first` to before `last`, in the same memory.
  Batch slice(std::int64_t first, std::int64_t last) const {
    const auto rows = [&](const torch::Tensor& tensor) { return tensor.slice(0, first, last); };
    return {inputs.transform(rows), labels.transform(rows), last - first};
  }

  Batch to(torch::Device device, bool non_blocking = false) const {
    return {inputs.to(device, non_blocking), labels.to(device, non_blocking), size};
  }
};

/// A batch of `inputs` and `labels` whose size is their first dimension. Throws DataError when there are no
/// inputs, or one of the tensors has no first dimension or another size there.
Batch make_batch(Tensors inputs, Tensors labels);

/// The batch with those of its inputs that have one of these names as its labels, in their order; unchanged
/// if it has labels already.
Batch split_labels(Batch batch, const std::vector<std::string>& label_names);

}  // namespace etude

#ifndef ETUDE_COMPILED
#include "etude/data/impl/batch.ipp"
#endif
