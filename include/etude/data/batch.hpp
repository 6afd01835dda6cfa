#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "etude/data/tensors.hpp"

namespace etude::inline v0 {

/// One example: tensors without a batch dimension. Unlabeled data has no labels.
struct Example {
  Tensors inputs;
  Tensors labels;
};

/// The input of one model step. The first dimension of each tensor is the number of examples, unless the
/// tensor says how its rows divide among them: `.labels = {boxes, etude::RowsByIndex{}}`, or `set_division`.
struct Batch {
  Tensors inputs;
  Tensors labels;
  std::int64_t size = 0;  ///< number of examples

  /// The examples [first, last). They share this batch's memory where their rows are consecutive. Throws
  /// DataError for a tensor that doesn't divide.
  Batch slice(std::int64_t first, std::int64_t last) const;

  /// Throws DataError that names the first tensor that doesn't divide among the examples; `reason` begins the
  /// message.
  void check_divisible(std::string_view reason) const;

  Batch to(torch::Device device, bool non_blocking = false) const {
    return {inputs.to(device, non_blocking), labels.to(device, non_blocking), size};
  }
};

/// A batch of `inputs` and `labels` whose size is their first dimension. Throws DataError if there are no
/// inputs, or if a tensor that doesn't say how its rows divide has no first dimension or one of a different
/// size.
Batch make_batch(Tensors inputs, Tensors labels);

namespace detail {

/// Returns why a tensor doesn't divide among `size` examples as `division` says; empty if it does.
std::string division_fault(const torch::Tensor& tensor, const Division& division, std::int64_t size);

/// The column that RowsByIndex names.
torch::Tensor index_of(const torch::Tensor& tensor, const RowsByIndex& by);

/// Throws DataError for a tensor that doesn't divide, and names it ("label 0").
[[noreturn]] void throw_indivisible(std::string_view reason, std::string_view kind, const Tensors& tensors,
                                    std::size_t i, std::int64_t size, std::string_view fault);

/// Throws DataError that begins with `reason` unless each tensor has one row for each example.
void check_row_per_example(const Batch& batch, std::string_view reason);

}  // namespace detail

/// Moves the inputs with these names to the batch's labels, in this order. A batch that already has labels
/// stays as it is.
Batch split_labels(Batch batch, const std::vector<std::string>& label_names);

}  // namespace etude::inline v0
